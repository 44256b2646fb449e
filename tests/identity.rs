//! Client and node certificates: which are accepted, and the errors for the others.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_identity::{Authority, CertificateInfo, ClientConfig, ClientSpec, Role, tls};
use mainstay_testkit::{Credentials, TestNetwork, TestNode, connect_tls, require};

/// The handshake and one call: where a refusal of TLS 1.3 shows at the latest.
async fn try_version(node: &TestNode, credentials: &Credentials) -> Result<(), String> {
    let explained = |error: &(dyn std::error::Error + 'static)| {
        tls::explain(error).unwrap_or_else(|| format!("unexplained: {error:?}"))
    };
    let channel = match connect_tls(node.listen(), credentials).await {
        Ok(channel) => channel,
        Err(error) => return Err(explained(error.as_ref())),
    };
    match MachineServiceClient::new(channel).version(()).await {
        Ok(_) => Ok(()),
        Err(status) => Err(explained(&status)),
    }
}

fn client_of(authority: &Authority, now: jiff::Timestamp, ttl: Duration) -> Credentials {
    let spec = ClientSpec {
        name: "eve".to_owned(),
        roles: vec![Role::Admin],
        ttl,
    };
    Credentials::issued(&authority.issue_client_at(&spec, now).unwrap())
}

#[tokio::test]
async fn a_certificate_of_another_ca_is_refused_with_the_reason() {
    let node = TestNode::start();
    let other = Authority::create("mainstay", Duration::from_secs(3600)).unwrap();
    let mut eve = client_of(&other, jiff::Timestamp::now(), Duration::from_secs(600));
    let said = try_version(&node, &eve).await.unwrap_err();
    assert!(
        said.contains("CA"),
        "the node is not trusted by that CA's client: {said}"
    );
    eve.ca = node.ca();
    let said = try_version(&node, &eve).await.unwrap_err();
    assert!(said.contains("CA"), "nor is the client by the node: {said}");
}

#[tokio::test]
async fn an_expired_certificate_is_refused_with_the_reason() {
    let node = TestNode::start();
    let last_year = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(24 * 365);
    let eve = client_of(&node.authority(), last_year, Duration::from_secs(3600));
    let said = try_version(&node, &eve).await.unwrap_err();
    assert!(said.contains("expired"), "{said}");
    node.wait_for_log("TLS handshake refused");
    let log = node.cli().run(["logs", "mainstay"]).ok();
    assert!(
        log.contains("TLS handshake refused") && log.contains("expired"),
        "{log}"
    );
}

#[tokio::test]
async fn a_client_without_certificate_learns_that_one_is_required() {
    let node = TestNode::start();
    let nobody = Credentials {
        ca: node.ca(),
        identity: None,
    };
    let said = try_version(&node, &nobody).await.unwrap_err();
    assert!(said.contains("requires a client certificate"), "{said}");
}

#[test]
fn the_command_says_what_is_wrong_with_tls_in_one_line() {
    let node = TestNode::start();
    let other = TestNode::start();
    let endpoint = node.listen().to_string();

    let said = other.cli().run(["version", "-e", &endpoint]).failed(4);
    assert!(said.contains("CA"), "unknown CA: {said}");
    assert_eq!(said.lines().count(), 1, "{said}");

    // A way to write 127.0.0.1 that every resolver understands and no certificate carries.
    let name = format!("0x7f000001:{}", node.listen().port());
    let said = node.cli().run(["version", "-e", &name]).failed(4);
    assert!(
        said.contains("0x7f000001") && said.contains("127.0.0.1"),
        "the name asked for and those there are: {said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");

    let said = node.cli().run(["version", "-e", "127.0.0.1:1"]).failed(3);
    assert!(said.contains("cannot reach node 127.0.0.1:1"), "{said}");
}

#[test]
fn an_expired_context_is_reported_with_its_date_before_connecting() {
    let node = TestNode::start();
    let last_year = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(24 * 365);
    let eve = client_of(&node.authority(), last_year, Duration::from_secs(3600));
    let (crt, key) = eve.identity.unwrap();
    let dir = node.scratch();
    std::fs::write(dir.join("crt"), crt).unwrap();
    std::fs::write(dir.join("key"), key.expose()).unwrap();
    std::fs::write(dir.join("ca"), eve.ca).unwrap();
    let endpoint = node.listen().to_string();
    let add = [
        "config", "add", "eve", "-e", &endpoint, "--ca", "ca", "--crt", "crt", "--key", "key",
    ];
    node.cli().run(add).ok();
    let said = node.cli().run(["version"]).failed(4);
    let year = last_year.strftime("%Y-").to_string();
    assert!(said.contains("expired") && said.contains(&year), "{said}");
}

#[test]
fn a_certificate_that_expires_soon_causes_a_warning() {
    let node = TestNode::start();
    let soon = node.cli().run([
        "pki",
        "client",
        "--name",
        "alice",
        "--role",
        "os:reader",
        "--ttl",
        "2days",
        "--out",
        "alice.yaml",
    ]);
    soon.ok();
    let output = node.cli().run(["version", "--client-config", "alice.yaml"]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    // Two days of life of which none has passed: not yet worth a word.
    assert_eq!(output.stderr, "");
    let month_ago = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(24 * 30);
    let old = client_of(
        &node.authority(),
        month_ago,
        Duration::from_secs(33 * 24 * 3600),
    );
    let info = CertificateInfo::from_pem(&old.identity.as_ref().unwrap().0).unwrap();
    assert!(tls::certificate_warning("context \"x\"", &info, jiff::Timestamp::now()).is_some());
}

#[test]
fn roles_are_enforced_and_the_refusal_has_an_exit_code() {
    let node = TestNode::start();
    node.cli()
        .run([
            "pki",
            "client",
            "--name",
            "nobody",
            "--role",
            "os:reader",
            "--out",
            "reader.yaml",
        ])
        .ok();
    node.cli()
        .run([
            "logs",
            "mainstay",
            "--tail",
            "1",
            "--client-config",
            "reader.yaml",
        ])
        .ok();
    let mode = std::fs::metadata(node.scratch().join("reader.yaml"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn secrets_that_others_can_read_stop_the_start_with_the_remedy() {
    for file in ["pki/ca.key", "pki/node.key", "client.yaml"] {
        let mut node = TestNode::start();
        let path = node.state().join(file);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(node.stop().success());
        let mut again = std::process::Command::new(mainstay_testkit::binary());
        again
            .args(["serve", "--listen", "127.0.0.1:0", "--state"])
            .arg(node.state());
        let output = again.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{file}: {said}");
        assert!(said.contains("chmod 600"), "{file}: {said}");
    }
}

#[tokio::test]
async fn a_node_certificate_can_be_renewed_while_it_serves() {
    let node = TestNode::start();
    let admin = node.admin();
    let serial = async || {
        let stream = admin.handshake(node.listen()).await.unwrap();
        let certificates = stream.get_ref().1.peer_certificates().unwrap();
        CertificateInfo::from_der(&certificates[0]).unwrap().serial
    };
    let before = serial().await;
    let open = node.connect().await;
    let renewed = crate::daemon::wait_for_event(&node, "node certificate renewed").await;
    node.cli().run(["pki", "renew"]).ok();
    renewed.await.unwrap();
    assert_ne!(
        serial().await,
        before,
        "new connections see the new certificate"
    );
    MachineServiceClient::new(open)
        .version(())
        .await
        .expect("open ones go on");
    node.cli().run(["pki", "renew", "client"]).ok();
    node.cli().run(["version"]).ok();
}

#[test]
fn a_node_joins_with_a_certificate_made_elsewhere() {
    let home = tempfile::tempdir().unwrap();
    let cli = || mainstay_testkit::Cli::new(home.path());
    cli()
        .run(["pki", "ca", "--out", "fleet", "--name", "fleet"])
        .ok();
    let said = cli().run(["pki", "ca", "--out", "fleet"]).failed(1);
    assert!(said.contains("ca.crt exists"), "{said}");
    cli()
        .run([
            "pki", "client", "--ca", "fleet", "--name", "ops", "--role", "os:admin", "--pem", "ops",
        ])
        .ok();

    let builder = TestNode::builder();
    let pki = builder.state().join("pki");
    let san = ["--san", "127.0.0.1", "--san", "localhost"];
    let mut args = vec!["pki", "node", "--ca", "fleet", "--name", "node2", "--out"];
    let out = pki.display().to_string();
    args.push(&out);
    args.extend(san);
    cli().run(args).ok();
    let node = builder.start();
    assert!(
        !node.state().join("client.yaml").exists(),
        "no CA key here, so no certificate either"
    );
    let endpoint = node.listen().to_string();
    cli()
        .run([
            "config",
            "add",
            "node2",
            "-e",
            &endpoint,
            "--ca",
            "ops/ca.crt",
            "--crt",
            "ops/client.crt",
            "--key",
            "ops/client.key",
        ])
        .ok();
    cli().run(["version"]).ok();
    // Root on the node itself still gets in: the kernel vouches for it.
    let socket = format!("unix:{}", node.socket().display());
    cli().run(["version", "-e", &socket]).ok();
}

#[test]
fn the_client_configuration_of_a_node_that_listens_everywhere_works_elsewhere() {
    require!(Network);
    let network = TestNetwork::of_machines(2);
    let node = TestNode::builder()
        .on(network.machine(0))
        .arg("--listen")
        .arg("0.0.0.0:50000")
        .start();
    let file = node.state().join("client.yaml");
    let endpoints = || {
        let config = ClientConfig::load(&file).unwrap();
        config.get(None).unwrap().1.endpoints.clone()
    };
    // Without the port: original clients append it themselves.
    assert_eq!(endpoints(), [TestNetwork::address(0)]);
    let mut version = network.machine(1).command(&mainstay_testkit::binary());
    version
        .args(["version", "-o", "json", "--client-config"])
        .arg(&file);
    let output = version.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");

    // The configuration of a further client points there too.
    let issue = ["pki", "client", "--name", "bob", "--role", "os:reader"];
    let yaml = node.cli().run(issue).ok();
    assert!(yaml.contains(&TestNetwork::address(0)), "{yaml}");
    assert!(!yaml.contains(":50000"), "{yaml}");
}

#[test]
fn a_new_endpoint_keeps_the_administrator_s_credentials() {
    let mut node = TestNode::start();
    let file = node.state().join("client.yaml");
    let mut config = ClientConfig::load(&file).unwrap();
    let before = config.clone();
    let name = config.context.clone();
    config.contexts.get_mut(&name).unwrap().endpoints = vec!["10.0.0.1:50000".to_owned()];
    assert!(node.stop().success());
    config.save(&file).unwrap();
    let node = node.restart();
    let after = ClientConfig::load(&file).unwrap();
    let (before, after) = (&before.contexts[&name], &after.contexts[&name]);
    assert_eq!(after.endpoints, [node.listen().to_string()]);
    assert_eq!(after.crt, before.crt);
    node.cli().run(["version"]).ok();
}
