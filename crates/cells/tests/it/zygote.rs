//! The entry of the process that shims are forked from, started by the engine under test as
//! `mainstay` would start itself.

#[test]
#[ignore = "not a test: the zygote's entry"]
fn entry() {
    mainstay_cells::zygote::run().unwrap();
}
