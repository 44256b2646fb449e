//! Captures of a node: however the stream is cut into chunks, the same items come out of it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mainstay_capture::Decoder;

fn items(data: &[u8], chunk: usize) -> Vec<String> {
    let mut decoder = Decoder::default();
    let mut items = Vec::new();
    for chunk in data.chunks(chunk) {
        decoder.push(chunk);
        loop {
            match decoder.next_item() {
                Ok(Some(item)) => items.push(format!("{item:?}")),
                Ok(None) => break,
                Err(error) => {
                    items.push(error.to_string());
                    return items;
                }
            }
        }
    }
    items
}

fuzz_target!(|data: &[u8]| {
    assert_eq!(items(data, usize::MAX), items(data, 7));
});
