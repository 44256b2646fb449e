//! The daemon's configuration: an error names a line of the file, and an accepted configuration
//! contains only valid values. The list of all errors agrees with the first one, and removing the
//! secrets of a text leaves a text of the same keys.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mainstay_daemon::config::{CertificateName, Settings, check, redacted_texts};
use mainstay_daemon::{Config, ConfigError, Overrides};
use mainstay_fuzz::Scratch;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let checked = check(text);
    assert_eq!(checked.is_ok(), Settings::parse(text).is_ok());
    for problem in checked.err().into_iter().flatten() {
        assert!((1..=text.split('\n').count()).contains(&problem.line));
    }
    if let Ok(table) = text.parse::<toml::Table>() {
        let shown = redacted_texts(text, text).1.expect("a text that parses");
        let shown: toml::Table = shown.parse().expect("still TOML");
        assert!(shown.keys().eq(table.keys()));
    }
    let scratch = Scratch::fresh();
    let overrides = Overrides {
        config: Some(scratch.write("config.toml", data)),
        ..Overrides::default()
    };
    match (Settings::parse(text), Config::load(&overrides)) {
        (Ok(_), Ok(config)) => {
            check_values(&config);
            assert_eq!(Config::load(&overrides).ok(), Some(config));
        }
        (Err(message), Err(ConfigError::Invalid { .. })) => check_line(&message, text),
        (parsed, loaded) => panic!("parsed as {parsed:?}, loaded as {loaded:?}"),
    }
});

fn check_values(config: &Config) {
    let settings = &config.settings;
    assert!(
        settings
            .pods_listen
            .is_none_or(|address| address.0.ip().is_loopback())
    );
    for size in [
        settings.log.file_size,
        settings.log.total_size,
        settings.events.max_size,
    ] {
        assert!(size.0 >= 4096);
    }
    for name in &settings.names {
        if let CertificateName::Dns(name) = name {
            let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
            assert!((1..=253).contains(&name.len()) && name.bytes().all(plain));
        }
    }
    let sockets = settings.containers.sockets();
    for socket in [&sockets.containerd, &sockets.cri]
        .into_iter()
        .chain(sockets.namespaces.values())
    {
        assert!(socket.is_absolute() && socket.as_os_str().len() < 108);
    }
    for serial in &settings.identity.revoked {
        let digits = &serial.0;
        let plain = |byte: u8| matches!(byte, b'a'..=b'f' | b'0'..=b'9');
        assert!((1..=40).contains(&digits.len()) && digits.bytes().all(plain));
    }
}

fn check_line(message: &str, text: &str) {
    let line: usize = message
        .split_once(" at line ")
        .and_then(|(_, rest)| rest.split_once(','))
        .and_then(|(number, _)| number.parse().ok())
        .unwrap_or_else(|| panic!("no line in {message:?}"));
    // EOF may be the start of an empty line.
    let lines = text.split('\n').count();
    assert!(
        (1..=lines).contains(&line),
        "line {line} of {lines}: {message}"
    );
}
