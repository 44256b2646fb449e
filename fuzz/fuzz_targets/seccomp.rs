//! Seccomp profiles: an accepted one is a program that the kernel loads, and unchanged when it is
//! read back from a record.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mainstay_cells::seccomp::{Filter, Profile};

/// BPF_MAXINSNS.
const MAX_INSTRUCTIONS: usize = 4096;
/// The code of a return of a constant.
const RETURN: u16 = 0x06;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let profile = match text.parse::<Profile>() {
        Ok(profile) => profile,
        Err(error) => {
            assert!(error.to_string().len() < 1024, "{error}");
            return;
        }
    };
    assert_eq!(profile.as_str(), if text.is_empty() { "default" } else { text });
    let kept = serde_json::to_string(&profile).unwrap();
    assert_eq!(serde_json::from_str::<Profile>(&kept).unwrap(), profile);
    if let Some(filter) = profile.filter().unwrap() {
        check(&filter);
    }
});

/// Every jump stays inside the program, so every path ends at a return.
fn check(filter: &Filter) {
    let program = filter.instructions();
    assert!((1..=MAX_INSTRUCTIONS).contains(&program.len()));
    assert_eq!(program.last().map(|last| last.code), Some(RETURN));
    for (at, instruction) in program.iter().enumerate() {
        let furthest = match instruction.code {
            0x05 => usize::try_from(instruction.k).unwrap(),
            code if code & 0x07 == 0x05 => usize::from(instruction.jt.max(instruction.jf)),
            _ => continue,
        };
        assert!(at + 1 + furthest < program.len(), "{at} leads outside");
    }
}
