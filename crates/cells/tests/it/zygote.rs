//! The entry of the zygote process, which the engine under test starts.

#[test]
#[ignore = "not a test: the zygote's entry"]
fn entry() {
    mainstay_cells::zygote::run().unwrap();
}
