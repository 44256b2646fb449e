//! The names of a container, which depend on whether it is part of a pod.

use std::collections::HashMap;

use crate::container::Kind;

const KIND: &str = "io.cri-containerd.kind";
const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
const POD_NAME: &str = "io.kubernetes.pod.name";
const POD_UID: &str = "io.kubernetes.pod.uid";
const CONTAINER_NAME: &str = "io.kubernetes.container.name";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) id: String,
    pub(crate) pod_id: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) kind: Kind,
}

impl Names {
    pub(crate) fn plain(internal_id: &str) -> Self {
        Self {
            id: internal_id.to_owned(),
            pod_id: internal_id.to_owned(),
            name: internal_id.to_owned(),
            uid: String::new(),
            kind: Kind::Plain,
        }
    }

    pub(crate) fn sandbox(namespace: &str, pod: &str, uid: &str) -> Self {
        let id = format!("{namespace}/{pod}");
        Self {
            pod_id: id.clone(),
            name: pod.to_owned(),
            id,
            uid: uid.to_owned(),
            kind: Kind::Sandbox,
        }
    }

    pub(crate) fn in_pod(pod_id: &str, container: &str, uid: &str) -> Self {
        Self {
            id: format!("{pod_id}:{container}"),
            pod_id: pod_id.to_owned(),
            name: container.to_owned(),
            uid: uid.to_owned(),
            kind: Kind::InPod,
        }
    }

    /// Derives the names from the labels that containerd's CRI plugin sets. A container of a pod
    /// with incomplete labels keeps its id as its name.
    pub(crate) fn from_labels(internal_id: &str, labels: &HashMap<String, String>) -> Self {
        let label = |key: &str| labels.get(key).map(String::as_str).unwrap_or_default();
        let kind = match label(KIND) {
            "sandbox" => Kind::Sandbox,
            "container" => Kind::InPod,
            _ => return Self::plain(internal_id),
        };
        let (namespace, pod, uid) = (label(POD_NAMESPACE), label(POD_NAME), label(POD_UID));
        let container = label(CONTAINER_NAME);
        let known = !namespace.is_empty() && !pod.is_empty();
        match kind {
            Kind::Sandbox if known => Self::sandbox(namespace, pod, uid),
            Kind::InPod if known && !container.is_empty() => {
                Self::in_pod(&format!("{namespace}/{pod}"), container, uid)
            }
            kind => Self {
                kind,
                uid: uid.to_owned(),
                ..Self::plain(internal_id)
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        pairs.iter().map(own).collect()
    }

    #[test]
    fn pods_and_their_containers_are_named_by_labels() {
        let pod = [
            (POD_NAMESPACE, "kube-system"),
            (POD_NAME, "dns-0"),
            (POD_UID, "u1"),
        ];
        let sandbox = labels(&[&pod[..], &[(KIND, "sandbox")]].concat());
        let names = Names::from_labels("0a1b", &sandbox);
        assert_eq!(
            (&*names.id, &*names.pod_id),
            ("kube-system/dns-0", "kube-system/dns-0")
        );
        assert_eq!((&*names.name, &*names.uid), ("dns-0", "u1"));
        let inside = [(KIND, "container"), (CONTAINER_NAME, "coredns")];
        let names = Names::from_labels("2c3d", &labels(&[&pod[..], &inside].concat()));
        assert_eq!(names.id, "kube-system/dns-0:coredns");
        assert_eq!(
            (&*names.pod_id, &*names.name),
            ("kube-system/dns-0", "coredns")
        );
    }

    #[test]
    fn incomplete_labels_leave_the_id() {
        for few in [
            labels(&[]),
            labels(&[(KIND, "sandbox")]),
            labels(&[(KIND, "container"), (POD_NAMESPACE, "a"), (POD_NAME, "b")]),
            labels(&[(KIND, "other"), (POD_NAMESPACE, "a"), (POD_NAME, "b")]),
        ] {
            let names = Names::from_labels("0a1b", &few);
            assert_eq!(
                (&*names.id, &*names.pod_id, &*names.name),
                ("0a1b", "0a1b", "0a1b")
            );
        }
    }

    proptest! {
        /// Names of Kubernetes hold neither `/` nor `:`, so an id tells its parts.
        #[test]
        fn ids_of_different_containers_differ(
            a in ("[a-z0-9-]{1,8}", "[a-z0-9.-]{1,8}", "[a-z0-9-]{1,8}"),
            b in ("[a-z0-9-]{1,8}", "[a-z0-9.-]{1,8}", "[a-z0-9-]{1,8}"),
        ) {
            let names = |(namespace, pod, container): &(String, String, String)| {
                let sandbox = Names::sandbox(namespace, pod, "");
                let inside = Names::in_pod(&sandbox.id, container, "");
                (sandbox, inside)
            };
            let ((pod_a, in_a), (pod_b, in_b)) = (names(&a), names(&b));
            prop_assert_eq!(in_a.id == in_b.id, a == b);
            prop_assert_eq!(pod_a.id == pod_b.id, (&a.0, &a.1) == (&b.0, &b.1));
            prop_assert_ne!(&pod_a.id, &in_b.id);
            prop_assert_eq!(in_a.id.rsplit_once(':'), Some((&*in_a.pod_id, &*in_a.name)));
        }

        #[test]
        fn whatever_the_labels_hold_there_is_an_id(
            values in proptest::collection::hash_map(
                prop_oneof![
                    Just(KIND), Just(POD_NAMESPACE), Just(POD_NAME), Just(CONTAINER_NAME),
                ].prop_map(str::to_owned),
                prop_oneof![Just("sandbox".to_owned()), Just("container".to_owned()), ".*"],
                0..5,
            ),
        ) {
            let names = Names::from_labels("own", &values);
            prop_assert!(!names.id.is_empty() && !names.pod_id.is_empty() && !names.name.is_empty());
            prop_assert!(names.id.starts_with(&names.pod_id));
        }
    }
}
