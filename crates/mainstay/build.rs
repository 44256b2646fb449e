//! Records the commit, its date and the compiler in the binary.
//!
//! `MAINSTAY_SHA` and `SOURCE_DATE_EPOCH` take precedence over git, so that builds without a
//! checkout are reproducible.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=MAINSTAY_SHA");
    println!("cargo:rerun-if-env-changed=SOURCE_DATE_EPOCH");
    for path in [
        "../../.git/HEAD",
        "../../.git/refs/heads",
        "../../.git/packed-refs",
    ] {
        if std::path::Path::new(path).exists() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    let sha = std::env::var("MAINSTAY_SHA")
        .ok()
        .or_else(|| output("git", &["rev-parse", "--short=12", "HEAD"]))
        .unwrap_or_default();
    let built = std::env::var("SOURCE_DATE_EPOCH")
        .ok()
        .or_else(|| output("git", &["log", "-1", "--format=%ct"]))
        .unwrap_or_default();
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let rust = output(&rustc, &["--version"])
        .and_then(|line| line.split(' ').nth(1).map(str::to_owned))
        .unwrap_or_default();
    println!("cargo:rustc-env=MAINSTAY_SHA={sha}");
    println!("cargo:rustc-env=MAINSTAY_BUILT={built}");
    println!("cargo:rustc-env=MAINSTAY_RUST={rust}");
}

fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
