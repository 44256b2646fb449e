//! A container as both drivers describe it.

/// One container, or the sandbox around the containers of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    pub namespace: String,
    /// What people call it: its own id, `namespace/pod` for a sandbox, `namespace/pod:container`
    /// inside one. Several may share it when a pod's container was started again.
    pub id: String,
    /// The id of the pod around it; `id` itself where there is none.
    pub pod_id: String,
    /// Its name in Kubernetes, else its id.
    pub name: String,
    /// What the runtime calls it; always of one container only.
    pub internal_id: String,
    /// The uid of the pod around it; empty where there is none.
    pub uid: String,
    /// The tag it was made from, else the digest.
    pub image: String,
    /// 0 when nothing runs.
    pub pid: u32,
    /// In the driver's own words, in capitals.
    pub status: &'static str,
    /// The name of its network namespace; empty when it has none of its own or a nameless one.
    pub network_namespace: String,
    pub kind: Kind,
    pub running: bool,
    /// Nanoseconds since the epoch; tells the instances of one container apart.
    pub created: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nobody but the runtime knows of it.
    Plain,
    /// What holds a pod together.
    Sandbox,
    /// One of the containers of a pod.
    InPod,
}

/// What a container uses; zeros when nothing runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Working set: what is charged to it, less file cache that nobody used of late.
    pub memory_bytes: u64,
    /// Since it began.
    pub cpu_nanos: u64,
}

impl Usage {
    pub(crate) fn new(charged_bytes: u64, inactive_file_bytes: u64, cpu_nanos: u64) -> Self {
        Self {
            memory_bytes: charged_bytes.saturating_sub(inactive_file_bytes),
            cpu_nanos,
        }
    }
}

/// The order in which they are shown: pods with what is in them, instances by age.
pub(crate) fn sort(containers: &mut [Container]) {
    containers.sort_by(|a, b| {
        (a.pod_id.cmp(&b.pod_id))
            .then_with(|| a.id.cmp(&b.id))
            .then_with(|| a.created.cmp(&b.created))
            .then_with(|| a.internal_id.cmp(&b.internal_id))
    });
}

/// For tests: a plain container in which nothing runs.
#[cfg(test)]
pub(crate) fn sample(namespace: &str, id: &str) -> Container {
    Container {
        namespace: namespace.to_owned(),
        id: id.to_owned(),
        pod_id: id.to_owned(),
        name: id.to_owned(),
        internal_id: id.to_owned(),
        uid: String::new(),
        image: String::new(),
        pid: 0,
        status: "STOPPED",
        network_namespace: String::new(),
        kind: Kind::Plain,
        running: false,
        created: 0,
    }
}
