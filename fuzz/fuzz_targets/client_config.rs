//! The client configuration: an error names a line and shows no secret, and an accepted
//! configuration is unchanged by saving and loading.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mainstay_fuzz::Scratch;
use mainstay_identity::ClientConfig;
use mainstay_identity::client_config::ClientConfigError;

/// Placeholder of [`SECRET`] in the bytes, so that mutations do not split it.
const PLACEHOLDER: &[u8] = b"$";
const SECRET: &str = "aHVzaC1odXNoLW5vYm9keS1rbm93cw==";

fuzz_target!(|data: &[u8]| {
    let bytes = data.split(|byte| PLACEHOLDER == [*byte]);
    let bytes = bytes.collect::<Vec<_>>().join(SECRET.as_bytes());
    let scratch = Scratch::fresh();
    let path = scratch.write("config", &bytes);
    match ClientConfig::load(&path) {
        Ok(config) => {
            let copy = scratch.path().join("copy");
            config.save(&copy).expect("what was loaded can be saved");
            let again = ClientConfig::load(&copy).expect("what was saved can be loaded");
            assert_eq!(again, config);
            let mut merged = config.clone();
            assert_eq!(merged.merge(again), []);
            assert_eq!(merged, config, "merged with itself");
        }
        Err(error) => check_error(&error, &bytes),
    }
});

fn check_error(error: &ClientConfigError, bytes: &[u8]) {
    let text = error.to_string();
    assert!(!text.contains(SECRET), "shows the contents: {text}");
    assert!(!text.contains('\n'), "more than a line: {text}");
    let ClientConfigError::Malformed { line, .. } = error else {
        panic!("the contents are no reason for: {text}");
    };
    let lines = bytes.split(|byte| matches!(byte, b'\n' | b'\r')).count();
    assert!(
        (1..=lines as u64).contains(line),
        "of {lines} lines: {text}"
    );
}
