//! The packages that `scripts/package` makes: the Debian package in a Debian that has nothing else,
//! the OCI image in containerd, and the SBOM.

use std::path::{Path, PathBuf};
use std::process::Command;

use mainstay_testkit::{Cli, CliOutput, Debian, ServerProcess, TestContainerd, binary, require};
use serde_json::Value;
use tempfile::TempDir;

#[test]
fn a_package_is_complete_reproducible_and_leaves_nothing_behind() {
    require!(Packaging, Containerd);
    let (first, second) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let program = stripped(first.path());
    let (out, again) = (first.path().join("out"), second.path().join("out"));
    package(&program, &out);
    package(&program, &again);
    they_are_equal_byte_for_byte(&out, &again);
    the_sbom_lists_what_is_compiled_in(&file(&out, "json"));
    the_debian_package_is_installed_used_and_purged(&file(&out, "deb"));
    the_image_is_an_upgrade_image_and_runs_in_containerd(&file(&out, "tar"), first.path());
}

/// The binary under test without its debug information, most of which a release does not have.
fn stripped(scratch: &Path) -> PathBuf {
    let program = scratch.join("mainstay");
    let strip = Command::new("strip")
        .arg("-o")
        .args([&program, &binary()])
        .output();
    CliOutput::from(strip.unwrap()).ok();
    program
}

fn package(program: &Path, out: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/package");
    let made = Command::new(script).args([program, out]).output().unwrap();
    CliOutput::from(made).ok();
}

/// The one file with this extension.
fn file(out: &Path, extension: &str) -> PathBuf {
    let entries = std::fs::read_dir(out)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let found: Vec<_> = entries
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

fn they_are_equal_byte_for_byte(out: &Path, again: &Path) {
    let mut compared = 0;
    for entry in std::fs::read_dir(out).unwrap() {
        let entry = entry.unwrap();
        let other = again.join(entry.file_name());
        let same = std::fs::read(entry.path()).unwrap() == std::fs::read(&other).unwrap();
        assert!(same, "{}", entry.path().display());
        compared += 1;
    }
    assert_eq!(compared, 3);
}

fn the_sbom_lists_what_is_compiled_in(sbom: &Path) {
    let text = std::fs::read_to_string(sbom).unwrap();
    let sbom: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(sbom["bomFormat"], "CycloneDX");
    let home = TempDir::new().unwrap();
    let version = Cli::new(home.path())
        .run(["version", "--client", "-o", "json"])
        .json();
    let component = &sbom["metadata"]["component"];
    assert_eq!(component["name"], "mainstay");
    let tag = format!("v{}", component["version"].as_str().unwrap());
    assert_eq!(version["client"]["tag"], tag);
    let components = sbom["components"].as_array().unwrap();
    let has = |name: &str| components.iter().any(|component| component["name"] == name);
    assert!(has("tonic") && has("rustls") && has("mainstay-cells"));
    // Of the build and of tests alone.
    assert!(!has("protox") && !has("proptest") && !has("mainstay-testkit"));
    let directory = env!("CARGO_MANIFEST_DIR");
    assert!(
        !text.contains(directory),
        "it names a directory of this machine"
    );
}

/// Lists all files but those that package managers keep for themselves.
const LIST: &str = r"find / -xdev \( -path /proc -o -path /tmp -o -path /var/lib/dpkg \
    -o -path /var/log -o -path '/var/lib/systemd/deb-systemd-helper*' \) -prune -o -print | sort";

fn the_debian_package_is_installed_used_and_purged(package: &Path) {
    let debian = Debian::unpack();
    std::fs::copy(package, debian.root().join("tmp/mainstay.deb")).unwrap();
    let script = format!(
        r#"
        {LIST} >/tmp/before
        dpkg --install /tmp/mainstay.deb
        dpkg --verify mainstay
        unit=/usr/lib/systemd/system/mainstay.service
        grep -q '^ExecStart=/usr/bin/mainstay serve' $unit
        ! grep @ $unit
        test -f /usr/share/man/man1/mainstay.1.gz
        grep -q mainstay /usr/share/bash-completion/completions/mainstay
        test -f /usr/share/doc/mainstay/sbom.cdx.json

        mkfifo /tmp/announced
        mainstay serve >/tmp/announced &
        node=$!
        exec 3</tmp/announced
        read -r line <&3
        mainstay version -o json >/tmp/version
        dpkg --remove mainstay
        kill $node
        wait $node

        # Removed is not purged: the identity of the node stays.
        test -f /var/lib/mainstay/pki/ca.crt
        test ! -e /usr/bin/mainstay
        dpkg --purge mainstay
        {LIST} >/tmp/after
        diff /tmp/before /tmp/after >&2
        cat /tmp/version
        "#
    );
    let printed = debian.run(&script).ok();
    let version = printed.lines().skip_while(|line| !line.starts_with('{'));
    let version: Value = serde_json::from_str(&version.collect::<String>()).unwrap();
    assert_eq!(
        version["client"]["tag"],
        version["server"][0]["version"]["tag"]
    );
}

fn the_image_is_an_upgrade_image_and_runs_in_containerd(image: &Path, scratch: &Path) {
    let image = image.to_str().unwrap();
    let shown = Cli::new(scratch).run(["upgrade-image", "show", image]).ok();
    assert!(shown.contains("linux/"), "{shown}");

    let containerd = TestContainerd::without_cri();
    let imported = [
        "images",
        "import",
        "--base-name",
        "mainstay.test/node",
        image,
    ];
    containerd.ctr(&imported);
    let names = containerd.ctr(&["images", "list", "--quiet"]);
    let name = names
        .lines()
        .find(|name| name.contains("mainstay.test/node"));
    let mut run = containerd.command();
    run.args(["run", "--rm", "--net-host", "--cgroup"]);
    run.arg(format!("/{}/node", containerd.cgroup()));
    run.arg("--fifo-dir").arg(containerd.fifos());
    // The binary under test needs the libraries of this machine; a release is static.
    for libraries in ["/lib", "/lib64"] {
        let source = Path::new(libraries).canonicalize().unwrap();
        let source = source.display();
        run.arg("--mount");
        run.arg(format!(
            "type=bind,src={source},dst={libraries},options=rbind:ro"
        ));
    }
    run.args([
        name.unwrap(),
        "node",
        "/usr/bin/mainstay",
        "serve",
        "--listen",
        "127.0.0.1:0",
    ]);
    let stderr = scratch.join("containerd-stderr");
    let mut node = ServerProcess::start(run, &stderr, |line| line.contains("ready in"));
    let fifos = containerd.fifos();
    let exec = [
        "tasks",
        "exec",
        "--fifo-dir",
        fifos.to_str().unwrap(),
        "--exec-id",
        "client",
        "node",
        "/usr/bin/mainstay",
        "version",
        "-o",
        "json",
    ];
    let version: Value = serde_json::from_str(&containerd.ctr(&exec)).unwrap();
    let platform = &version["server"][0]["platform"];
    assert_eq!(platform["mode"], "container", "{version}");
    containerd.ctr(&["tasks", "kill", "--signal", "SIGTERM", "node"]);
    assert!(node.wait().success(), "{}", node.stderr());
}
