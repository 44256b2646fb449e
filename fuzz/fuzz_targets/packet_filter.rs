//! Packet filters: what compiles has a program that the kernel's limits allow and that only jumps
//! forward, within itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mainstay_capture::{LinkType, MAX_INSTRUCTIONS, filter, parse_program};

fuzz_target!(|text: &str| {
    let _ = parse_program(text);
    for link in [LinkType::Ethernet, LinkType::Raw] {
        let Ok(program) = filter::compile(text, link, 1000) else {
            continue;
        };
        assert!((1..=MAX_INSTRUCTIONS).contains(&program.len()));
        for (index, instruction) in program.iter().enumerate() {
            let furthest = match instruction.op {
                0x05 => instruction.k as usize,
                0x06 => continue,
                _ => usize::from(instruction.jt.max(instruction.jf)),
            };
            assert!(index + 1 + furthest < program.len());
        }
    }
});
