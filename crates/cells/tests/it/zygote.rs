//! The entry of the zygote process, which the engine under test starts.

#[test]
#[ignore = "not a test: the zygote's entry"]
fn entry() {
    // SAFETY: with one test thread libtest runs this on the main thread, with nothing opened that
    // it uses later.
    #[allow(unsafe_code)]
    unsafe { mainstay_cells::zygote::run() }.unwrap();
}
