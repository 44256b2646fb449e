//! The parts of a container's OCI runtime specification that are used here.

use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Spec {
    #[serde(default)]
    linux: Option<Linux>,
}

#[derive(Debug, Default, Deserialize)]
struct Linux {
    #[serde(default)]
    namespaces: Option<Vec<Namespace>>,
}

#[derive(Debug, Deserialize)]
struct Namespace {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    path: String,
}

impl Spec {
    /// Parses a specification; a malformed one counts as empty.
    pub(crate) fn parse(json: &[u8]) -> Self {
        serde_json::from_slice(json).unwrap_or_default()
    }

    /// Returns the name of a bind-mounted network namespace, such as `cni-1f0c…`; empty for one that
    /// exists only through a process.
    pub(crate) fn network_namespace(&self) -> String {
        let namespaces = self.linux.iter().flat_map(|linux| &linux.namespaces);
        namespaces
            .flatten()
            .find(|namespace| namespace.kind == "network")
            .filter(|namespace| !namespace.path.starts_with("/proc/"))
            .and_then(|namespace| namespace.path.rsplit('/').next())
            .unwrap_or_default()
            .to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_network_namespace_is_named_by_the_end_of_its_path() {
        let of = |json: &str| Spec::parse(json.as_bytes()).network_namespace();
        let joined = r#"{"linux":{"namespaces":[{"type":"pid"},
            {"type":"network","path":"/var/run/netns/cni-1f0c"}]}}"#;
        assert_eq!(of(joined), "cni-1f0c");
        let of_process = r#"{"linux":{"namespaces":[{"type":"network","path":"/proc/7/ns/net"}]}}"#;
        assert_eq!(of(of_process), "");
        assert_eq!(of(r#"{"linux":{"namespaces":[{"type":"network"}]}}"#), "");
        assert_eq!(of(r#"{"linux":{"namespaces":null}}"#), "");
        assert_eq!(of(r#"{"linux":null,"process":{}}"#), "");
        assert_eq!(of("{}"), "");
    }

    proptest! {
        #[test]
        fn what_is_no_spec_tells_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert_eq!(Spec::parse(&bytes).network_namespace(), "");
        }
    }
}
