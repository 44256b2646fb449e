//! Upgrade images: whatever the bytes are, reading ends with a reason, and a binary that is returned
//! has the digest that was reported.
#![no_main]

use std::fs::File;

use libfuzzer_sys::fuzz_target;
use mainstay_fuzz::Scratch;
use mainstay_slots::{Digest, Image};

fuzz_target!(|data: &[u8]| {
    let scratch = Scratch::fresh();
    let path = scratch.write("image", data);
    let Ok(image) = Image::open(&path, scratch.path()) else {
        return;
    };
    let target = scratch.path().join("binary");
    let mut options = File::options();
    let mut file = options.create(true).truncate(true).read(true).write(true).open(&target).unwrap();
    if let Ok(binary) = image.extract(&mut file, &target) {
        let found = Digest::of_reader(File::open(&target).unwrap()).unwrap();
        assert_eq!(found, binary.digest);
    }
});
