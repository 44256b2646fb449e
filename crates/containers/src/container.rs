//! A container as both drivers describe it.

/// One container, or the sandbox around the containers of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    pub namespace: String,
    /// The id shown to users: its own id, `namespace/pod` for a sandbox, `namespace/pod:container`
    /// for a container of a pod. Instances of a restarted container share it.
    pub id: String,
    /// The id of the pod around it; `id` itself where there is none.
    pub pod_id: String,
    /// Its name in Kubernetes, else its id.
    pub name: String,
    /// The id in the runtime, unique to one container.
    pub internal_id: String,
    /// The uid of the pod around it; empty where there is none.
    pub uid: String,
    /// The tag of its image, else the digest.
    pub image: String,
    /// The PID on the host; 0 when nothing runs.
    pub pid: u32,
    /// The state as the driver names it, in capitals.
    pub status: &'static str,
    /// The name of its network namespace; empty if it has none of its own or one without a name.
    pub network_namespace: String,
    pub kind: Kind,
    pub running: bool,
    /// Nanoseconds since the epoch; differs between the instances of a container.
    pub created: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Not part of a pod.
    Plain,
    /// The sandbox of a pod.
    Sandbox,
    /// One of the containers of a pod.
    InPod,
}

/// CPU and memory usage of a container; zeros when nothing runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Working set: the charged memory without inactive file cache.
    pub memory_bytes: u64,
    /// CPU time since it started.
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

/// Sorts containers for display: by pod, then by id, instances by age.
pub(crate) fn sort(containers: &mut [Container]) {
    containers.sort_by(|a, b| {
        (a.pod_id.cmp(&b.pod_id))
            .then_with(|| a.id.cmp(&b.id))
            .then_with(|| a.created.cmp(&b.created))
            .then_with(|| a.internal_id.cmp(&b.internal_id))
    });
}

/// A stopped plain container, for tests.
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
