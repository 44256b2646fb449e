//! Pages of the kernel's ring buffer: every event is part of the page, and reading one ends.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mainstay_signals::page::{Page, PageFormat};

fuzz_target!(|data: &[u8]| {
    let Some(page) = Page::parse(data, PageFormat::usual()) else {
        return;
    };
    let mut total = 0;
    for event in page {
        total += event.data.len() + 4;
    }
    assert!(total <= data.len());
});
