//! Build information of this binary.

use mainstay_daemon::Build;

pub fn build() -> Build {
    let built = env!("MAINSTAY_BUILT")
        .parse()
        .ok()
        .and_then(|seconds| jiff::Timestamp::from_second(seconds).ok())
        .map(|time| time.to_string())
        .unwrap_or_default();
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    Build {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        sha: env!("MAINSTAY_SHA").to_owned(),
        built,
        rust: env!("MAINSTAY_RUST").to_owned(),
        arch: arch.to_owned(),
    }
}
