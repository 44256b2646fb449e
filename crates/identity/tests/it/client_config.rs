use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mainstay_identity::client_config::{ClientConfigError, Renamed};
use mainstay_identity::{ClientConfig, Context, PrivateKeyPem};
use proptest::prelude::*;

fn written(text: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    mainstay_records::write_durable(&path, text.as_bytes(), 0o600).unwrap();
    (directory, path)
}

fn parsed(text: &str) -> Result<ClientConfig, String> {
    let (_directory, path) = written(text);
    ClientConfig::load(&path).map_err(|error| {
        error
            .to_string()
            .replace(&path.display().to_string(), "config")
    })
}

fn pem(what: &str) -> String {
    format!("-----BEGIN {what}-----\nMAo=\n-----END {what}-----\n")
}

fn context(endpoint: &str) -> Context {
    Context {
        endpoints: vec![endpoint.to_owned()],
        ..Context::default()
    }
}

fn config(current: &str, contexts: &[(&str, &str)]) -> ClientConfig {
    ClientConfig {
        context: current.to_owned(),
        contexts: contexts
            .iter()
            .map(|(name, at)| ((*name).to_owned(), context(at)))
            .collect(),
        extra: BTreeMap::new(),
    }
}

#[test]
fn endpoints_are_written_without_the_default_port() {
    for (endpoint, written) in [
        ("10.0.0.1:50000", "10.0.0.1"),
        ("node-2.example.org:50000", "node-2.example.org"),
        ("[fd00::1]:50000", "fd00::1"),
        ("10.0.0.1:50001", "10.0.0.1:50001"),
        ("[fd00::1]:50001", "[fd00::1]:50001"),
        ("10.0.0.1", "10.0.0.1"),
        ("fd00::50000", "fd00::50000"),
        ("fd00:50000", "fd00"),
        ("fd00::1:50000", "fd00::1:50000"),
        ("unix:50000", "unix:50000"),
        ("unix:/run/x:50000", "unix:/run/x:50000"),
        (":50000", ":50000"),
    ] {
        let text = config("a", &[("a", endpoint)]).to_yaml().unwrap();
        let (_directory, path) = self::written(&text);
        let read = ClientConfig::load(&path).unwrap();
        assert_eq!(read.get(None).unwrap().1.endpoints, [written], "{endpoint}");
    }
}

#[test]
fn a_file_of_an_existing_client_is_read_and_unknown_keys_are_preserved() {
    let text = format!(
        "context: lab\n\
         contexts:\n\
         \x20   lab:\n\
         \x20       endpoints:\n\
         \x20           - 10.0.0.1\n\
         \x20           - node-2:50001\n\
         \x20       nodes: [10.0.0.3]\n\
         \x20       ca: {ca}\n\
         \x20       crt: {crt}\n\
         \x20       key: {key}\n\
         \x20       cluster: omni\n\
         \x20       auth:\n\
         \x20           identity: ann@example.org\n\
         \x20   local:\n\
         \x20       socket: /run/mainstay.sock\n\
         version: 3\n",
        ca = STANDARD.encode(pem("CERTIFICATE")),
        crt = STANDARD.encode(pem("CERTIFICATE")),
        key = STANDARD.encode(pem("PRIVATE KEY")),
    );
    let (directory, path) = written(&text);
    let config = ClientConfig::load(&path).unwrap();
    let (name, lab) = config.get(None).unwrap();
    assert_eq!(name, "lab");
    assert_eq!(lab.endpoints, ["10.0.0.1", "node-2:50001"]);
    assert_eq!(lab.nodes, ["10.0.0.3"]);
    assert_eq!(lab.ca, Some(pem("CERTIFICATE")));
    assert_eq!(lab.identity().unwrap().1.expose(), pem("PRIVATE KEY"));
    assert_eq!(lab.extra["cluster"], "omni");
    assert_eq!(lab.extra["auth"]["identity"], "ann@example.org");
    let local = config.get(Some("local")).unwrap().1;
    assert_eq!(
        local.socket.as_deref(),
        Some(Path::new("/run/mainstay.sock"))
    );
    assert_eq!(local.identity(), None);
    assert_eq!(config.extra["version"], 3);

    let copy = directory.path().join("copy");
    config.save(&copy).unwrap();
    assert_eq!(ClientConfig::load(&copy).unwrap(), config);
}

#[test]
fn base64_broken_over_lines_is_read() {
    let encoded = STANDARD.encode(pem("CERTIFICATE"));
    let (first, second) = encoded.split_at(20);
    let text = format!("contexts:\n  a:\n    ca: |\n      {first}\n      {second}\n");
    assert_eq!(
        parsed(&text).unwrap().contexts["a"].ca,
        Some(pem("CERTIFICATE"))
    );
}

#[test]
fn an_empty_file_is_an_empty_configuration() {
    assert_eq!(parsed("").unwrap(), ClientConfig::default());
    assert_eq!(
        parsed("context:\ncontexts:\n").unwrap(),
        ClientConfig::default()
    );
}

#[test]
fn errors_name_the_line_and_show_no_contents() {
    let secret = STANDARD.encode("not PEM, but secret all the same");
    for (text, line) in [
        (
            format!("context: a\ncontexts:\n  a:\n    endpoints: []\n    key: {secret}\n"),
            5,
        ),
        (
            format!("context: a\ncontexts:\n  a:\n    key: [{secret}]\n"),
            4,
        ),
        (format!("context: a\ncontexts:\n  a: {secret}\n"), 3),
        (format!("context: a\ncontexts: {secret}\n"), 2),
        (
            format!("context: a\ncontexts:\n  a:\n    endpoints: {secret}\n"),
            4,
        ),
        (
            format!("contexts:\n  a:\n    key: \"{secret}\n    ca: x\n"),
            4,
        ),
        (format!("{secret}\n"), 1),
        (format!("contexts:\n  a:\n    crt: 'äöü{secret}'\n"), 3),
    ] {
        let error = parsed(&text).unwrap_err();
        assert!(!error.contains(&secret), "shows the contents: {error}");
        assert!(
            error.starts_with(&format!("config, line {line}: ")),
            "{text}{error}"
        );
        assert!(!error.contains('\n'), "one line: {error}");
    }
}

#[test]
fn a_value_that_is_no_pem_is_reported_as_such() {
    let text = "contexts:\n  a:\n    endpoints: []\n    key: nonsense!\n";
    assert_eq!(
        parsed(text).unwrap_err(),
        "config, line 4: the value is not a PEM text in base64"
    );
}

#[test]
fn invalid_utf8_is_an_error_with_its_line() {
    let (_directory, path) = written("");
    fs::write(&path, b"context: a\ncontexts: \xff\n").unwrap();
    let error = ClientConfig::load(&path).unwrap_err();
    assert!(
        matches!(error, ClientConfigError::Malformed { line: 2, .. }),
        "{error}"
    );
}

#[test]
fn a_file_that_others_can_read_is_refused() {
    let key = STANDARD.encode(pem("PRIVATE KEY"));
    let (_directory, path) = written(&format!("contexts:\n  a:\n    key: {key}\n"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let error = ClientConfig::load(&path).unwrap_err();
    assert!(error.is_permission_problem());
    assert_eq!(
        error.to_string(),
        format!(
            "config can be read by others (mode 0640); chmod 600 {}",
            path.display()
        )
    );
}

#[test]
fn a_shared_file_is_read_with_its_mode() {
    let key = STANDARD.encode(pem("PRIVATE KEY"));
    let (_directory, path) = written(&format!("contexts:\n  a:\n    key: {key}\n"));
    assert_eq!(ClientConfig::load_shared(&path).unwrap().1, None);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let (config, mode) = ClientConfig::load_shared(&path).unwrap();
    assert_eq!(mode, Some(0o644));
    assert!(config.contexts["a"].key.is_some());
}

#[test]
fn a_file_of_another_kind_is_not_called_too_open() {
    let (_directory, path) = written("root:x:0:0:root:/root:/bin/bash\n");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let error = ClientConfig::load(&path).unwrap_err().to_string();
    assert!(!error.contains("chmod"), "{error}");
    let (_directory, path) = written("contexts:\n  a:\n    endpoints: [b]\n");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    ClientConfig::load(&path).expect("a file without a key may be shared");
}

#[test]
fn a_missing_file_is_an_error_that_names_it() {
    let directory = tempfile::tempdir().unwrap();
    let error = ClientConfig::load(&directory.path().join("none")).unwrap_err();
    assert!(!error.is_permission_problem());
    assert!(
        error.to_string().contains("/none; check that it exists"),
        "{error}"
    );
}

#[test]
fn saving_creates_a_private_file_and_follows_a_symlink() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep/er/config");
    config("a", &[("a", "h")]).save(&path).unwrap();
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o7777,
        0o600
    );

    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let changed = config("b", &[("b", "h")]);
    changed.save(&link).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(ClientConfig::load(&path).unwrap(), changed);
}

#[test]
fn contexts_are_selected_removed_and_not_found_by_name() {
    let mut config = config("", &[("lab", "h"), ("prod", "i")]);
    let error = config.get(None).unwrap_err().to_string();
    assert_eq!(
        error,
        "no context is chosen; the configuration has lab, prod"
    );
    config.use_context("prod").unwrap();
    assert_eq!(config.get(None).unwrap().0, "prod");
    let expected = "no context \"dev\"; the configuration has lab, prod";
    assert_eq!(config.get(Some("dev")).unwrap_err().to_string(), expected);
    assert_eq!(config.use_context("dev").unwrap_err().to_string(), expected);
    assert_eq!(config.remove("dev").unwrap_err().to_string(), expected);

    assert_eq!(config.remove("prod").unwrap(), context("i"));
    assert_eq!(config.context, "");
    config.remove("lab").unwrap();
    assert_eq!(
        config.get(None).unwrap_err().to_string(),
        "no context is chosen; the configuration has none, merge one into it first"
    );
}

#[test]
fn merging_renames_clashing_contexts_and_keeps_the_current_one() {
    let mut ours = config("lab", &[("lab", "h"), ("lab-1", "i"), ("same", "s")]);
    let theirs = config("lab", &[("lab", "other"), ("same", "s"), ("new", "n")]);
    let renamed = ours.merge(theirs);
    assert_eq!(
        renamed,
        [Renamed {
            from: "lab".into(),
            to: "lab-2".into()
        }]
    );
    assert_eq!(ours.context, "lab");
    assert_eq!(ours.contexts["lab"], context("h"));
    assert_eq!(ours.contexts["lab-2"], context("other"));
    assert_eq!(ours.contexts.len(), 5);
}

#[test]
fn merging_into_an_empty_configuration_takes_the_current_context() {
    let mut empty = ClientConfig::default();
    assert_eq!(empty.merge(config("b", &[("a", "h"), ("b", "i")])), []);
    assert_eq!(empty.context, "b");
}

#[test]
fn no_key_shows_in_debug_output() {
    let mut config = config("a", &[("a", "h")]);
    let one = config.contexts.get_mut("a").unwrap();
    one.key = Some(PrivateKeyPem::new("hush"));
    one.extra.insert("token".into(), "hush".into());
    config.extra.insert("token".into(), "hush".into());
    assert!(!format!("{config:?}").contains("hush"));
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z0-9.:-]{1,20}",
        ".{0,12}",
        "(true|null|~|-|0x1F|1e3|012|on|<<|[|]|\\{|#a|a: b|- a|'|\"|\n|\t|\u{85}|\u{2028}| a | )",
    ]
}

fn any_pem() -> impl Strategy<Value = Option<String>> {
    proptest::option::of("[A-Za-z0-9+/=\n]{0,200}".prop_map(|body| {
        format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")
    }))
}

fn any_extra() -> impl Strategy<Value = BTreeMap<String, serde_json::Value>> {
    let value = prop_oneof![
        any_text().prop_map(serde_json::Value::from),
        any::<i32>().prop_map(serde_json::Value::from),
        any::<bool>().prop_map(serde_json::Value::from),
        Just(serde_json::Value::Null),
        proptest::collection::vec(any_text(), 0..3).prop_map(serde_json::Value::from),
    ];
    proptest::collection::btree_map("x-[a-z]{1,6}", value, 0..3)
}

prop_compose! {
    fn any_context()(
        endpoints in proptest::collection::vec(any_text(), 0..3),
        nodes in proptest::collection::vec(any_text(), 0..3),
        socket in proptest::option::of("/[a-z/ .:#]{1,20}"),
        ca in any_pem(),
        crt in any_pem(),
        key in any_pem(),
        extra in any_extra(),
    ) -> Context {
        let key = key.map(PrivateKeyPem::new);
        Context { endpoints, nodes, socket: socket.map(PathBuf::from), ca, crt, key, extra }
    }
}

prop_compose! {
    fn any_config()(
        context in any_text(),
        contexts in proptest::collection::btree_map(any_text(), any_context(), 0..4),
        extra in any_extra(),
    ) -> ClientConfig {
        ClientConfig { context, contexts, extra }
    }
}

// Names from a small set, so that clashes happen.
prop_compose! {
    fn clashing_config()(
        context in "[ab](-1)?",
        contexts in proptest::collection::btree_map(
            "[ab](-[12])?", "[pq]".prop_map(|at| context(&at)), 0..6,
        ),
    ) -> ClientConfig {
        ClientConfig { context, contexts, extra: BTreeMap::new() }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_saved_configuration_is_loaded_unchanged(config in any_config()) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        config.save(&path).unwrap();
        prop_assert_eq!(ClientConfig::load(&path).unwrap(), config);
    }

    #[test]
    fn no_file_causes_a_panic(text in prop_oneof![
        ".{0,200}",
        "(context|contexts|a|key|ca|- |: |:\n|\n|  |\\[|\\]|\\{|\\}|\"|'|&x|\\*x|!!|\\||>|<<){0,60}",
    ]) {
        if let Err(error) = parsed(&text) {
            prop_assert!(error.starts_with("config, line "), "{}", error);
        }
    }

    #[test]
    fn merging_loses_nothing(ours in clashing_config(), theirs in clashing_config()) {
        let mut merged = ours.clone();
        let renamed = merged.merge(theirs.clone());
        for (name, context) in &ours.contexts {
            prop_assert_eq!(&merged.contexts[name], context, "ours stays under its name");
        }
        for (name, context) in &theirs.contexts {
            let now = renamed.iter().find(|one| one.from == *name).map_or(name, |one| &one.to);
            prop_assert_eq!(&merged.contexts[now], context, "theirs is where it was reported");
        }
        prop_assert_eq!(&merged.context, &ours.context);
        let again = merged.clone();
        merged.merge(theirs);
        prop_assert_eq!(merged, again, "merging the same once more changes nothing");
    }
}

#[test]
fn no_error_shows_the_contents_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    for text in [
        "contexts: SECRET",
        "contexts: {SECRET: 1, SECRET: 2}",
        "context: [SECRET]",
        "contexts: {a: SECRET}",
        "contexts: {a: {endpoints: SECRET}}",
        "contexts: {a: {key: SECRET}}",
        "contexts: {a: {key: !!binary SECRET}}",
        "contexts: &SECRET [*SECRET]",
        "contexts: *SECRET",
        "SECRET: }",
    ] {
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let error = ClientConfig::load(&path)
            .map(|_| ())
            .unwrap_err()
            .to_string();
        assert!(!error.contains("SECRET"), "{text}: {error}");
        assert!(error.contains("line 1"), "{text}: {error}");
    }
}
