//! Build information of this binary.

use mainstay_daemon::{Build, STATE_FORMAT};
use mainstay_slots::Stamp;

/// Facts that other programs find in the binary; the daemon reports them too.
#[used]
static STAMP: Stamp = Stamp::new(
    env!("CARGO_PKG_VERSION"),
    env!("MAINSTAY_SHA"),
    STATE_FORMAT,
);

pub fn build() -> Build {
    let built = env!("MAINSTAY_BUILT")
        .parse()
        .ok()
        .and_then(|seconds| jiff::Timestamp::from_second(seconds).ok())
        .map(|time| time.to_string())
        .unwrap_or_default();
    let (version, sha) = match STAMP.facts() {
        Some(facts) => (facts.version, facts.sha),
        None => (
            env!("CARGO_PKG_VERSION").into(),
            env!("MAINSTAY_SHA").into(),
        ),
    };
    Build {
        version,
        sha,
        built,
        rust: env!("MAINSTAY_RUST").to_owned(),
        arch: mainstay_slots::own_architecture().to_owned(),
    }
}
