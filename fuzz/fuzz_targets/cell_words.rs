//! Text in requests about cells: names, commands, lists of CPUs, disks, capabilities.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mainstay_cells::capabilities::Capabilities;
use mainstay_cells::{CellName, CpuList, Device, ExecutableName, ExecutableSpec};

fuzz_target!(|text: &str| {
    if let Ok(name) = text.parse::<CellName>() {
        assert_eq!(name.as_str(), text);
        assert!(name.key().len() <= 82 && !name.key().contains(['/', '_']));
    }
    if let Ok(name) = text.parse::<ExecutableName>() {
        assert_eq!(name.as_str(), text);
        assert!(!text.contains('/') && text != "." && text != "..");
    }
    if let Ok(words) = ExecutableSpec::split(text) {
        assert!(!words.is_empty());
        let spec = ExecutableSpec {
            words,
            environment: vec![text.to_owned()],
            working_directory: Some(text.to_owned()),
            ..ExecutableSpec::default()
        };
        let _ = spec.check();
    }
    if let Ok(list) = CpuList::new(text) {
        assert_eq!(list.as_str(), text);
    }
    if let Ok(device) = text.parse::<Device>() {
        assert_eq!(device.to_string().parse::<Device>().ok(), Some(device));
    }
    let _ = Capabilities::parse([text]);
});
