//! Archives: whatever the bytes are, reading ends, and what was read survives being written again.
#![no_main]

use std::io::Read;

use libfuzzer_sys::fuzz_target;
use mainstay_archive::{Content, Reader, Writer};

fuzz_target!(|data: &[u8]| {
    let mut reader = Reader::new(data);
    while let Ok(Some(member)) = reader.next_member() {
        let mut content = Vec::new();
        if reader.read_to_end(&mut content).is_err() {
            return;
        }
        // A size that a link or a directory claims is not part of it, and a name may end in a slash.
        let has_data = matches!(member.content, Content::Regular { .. } | Content::Sparse { .. });
        if !has_data || member.name.contains(&0) || member.name.ends_with(b"/") {
            continue;
        }
        let mut writer = Writer::new(Vec::new());
        writer.append(&member, &content[..]).unwrap();
        let again = writer.finish().unwrap();
        let read = Reader::new(&again[..]).next_member().unwrap().unwrap();
        assert_eq!(read.content, member.content);
        assert_eq!(read.name, member.name);
        assert_eq!(read.modified, member.modified);
    }
});
