//! Details that a runtime adds to its answers as JSON. containerd and CRI-O agree on the fields used
//! here.

use std::collections::HashMap;

use serde::Deserialize;

use crate::spec::Spec;

#[derive(Debug, Default, Deserialize)]
pub(super) struct Info {
    #[serde(default)]
    pub(super) pid: u32,
    /// Set for sandboxes only.
    #[serde(default)]
    pub(super) image: String,
    #[serde(rename = "runtimeSpec", default)]
    pub(super) spec: Option<Spec>,
}

impl Info {
    /// Parses the details; malformed ones count as empty.
    pub(super) fn parse(info: &HashMap<String, String>) -> Self {
        info.get("info")
            .and_then(|json| serde_json::from_str(json).ok())
            .unwrap_or_default()
    }

    pub(super) fn network_namespace(&self) -> String {
        let spec = self.spec.as_ref();
        spec.map(Spec::network_namespace).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pid_image_and_network_are_read_or_left_empty() {
        let of = |json: &str| Info::parse(&[("info".to_owned(), json.to_owned())].into());
        let info = of(
            r#"{"pid":7,"image":"a/pause:3","runtimeSpec":{"linux":{"namespaces":
            [{"type":"network","path":"/var/run/netns/cni-1"}]}},"more":[1]}"#,
        );
        assert_eq!((info.pid, &*info.image), (7, "a/pause:3"));
        assert_eq!(info.network_namespace(), "cni-1");
        for nothing in ["", "[]", "{\"pid\":-1}", "null"] {
            assert_eq!(of(nothing).pid, 0, "{nothing}");
        }
        assert_eq!(Info::parse(&HashMap::new()).pid, 0);
    }
}
