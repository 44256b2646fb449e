use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

use mainstay_container_clients::cri::image_service_client::ImageServiceClient;
use mainstay_container_clients::cri::runtime_service_client::RuntimeServiceClient;
use mainstay_container_clients::cri::{
    ContainerConfig, ContainerMetadata, CreateContainerRequest, ImageSpec, ImageStatusRequest,
    LinuxPodSandboxConfig, LinuxSandboxSecurityContext, NamespaceMode, NamespaceOption,
    PodSandboxConfig, PodSandboxMetadata, RunPodSandboxRequest, StartContainerRequest,
};
use tonic::transport::Channel;

use super::images::{self, BUSYBOX, PAUSE};
use super::{PATIENCE, connect_unix, soon};

/// A containerd of the test's own, with its CRI plugin, on a socket in a directory of its own.
///
/// Its mounts are in a namespace that goes with the last of its processes; those are all in cgroups
/// below one of its own, and whoever waits for the test's end clears them away, also when the test
/// was killed.
pub struct TestContainerd {
    dir: PathBuf,
    cgroup: String,
    child: Option<Child>,
    sweeper: Child,
}

/// Ends every process of the cgroup named by $1 and removes it, then the directory $2. Begins when
/// the test has closed its standard input, in whatever way it ended.
const SWEEP: &str = r#"
cat
trees=$(find /sys/fs/cgroup -maxdepth 2 -type d -name "$1")
turns=0
while pids=$(find $trees -name cgroup.procs -exec cat {} + | sort -u) && [ -n "$pids" ]; do
  kill -KILL $pids 2>/dev/null
  turns=$((turns + 1))
  [ $turns -lt 10000 ] || break
done
find $trees -depth -type d -exec rmdir {} + 2>/dev/null
rm -rf "$2"
"#;

/// Runs containerd in the cgroup named by $1 and in the directory $2. What it and its shims keep at
/// fixed places is kept there too, out of the machine's way.
const RUN: &str = r#"
for tree in /sys/fs/cgroup /sys/fs/cgroup/pids /sys/fs/cgroup/unified; do
  [ -e $tree/cgroup.procs ] || continue
  mkdir -p $tree/$1/daemon && echo $$ > $tree/$1/daemon/cgroup.procs
done
mkdir -p "$2/run" && mount --bind "$2/run" /run && exec containerd --config "$2/config.toml"
"#;

/// What it takes to run containers is said, not guessed.
const BOOTED: &[&str] = &["containerd successfully booted", "Start streaming server"];

impl TestContainerd {
    /// Whether this user can have one at all.
    pub fn is_possible() -> bool {
        rustix::process::geteuid().is_root()
    }

    pub fn start() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let cgroup = format!("mainstay-test-{}-{number}", std::process::id());
        let dir = tempfile::Builder::new()
            .prefix("mainstay-containerd-")
            .tempdir()
            .unwrap()
            .keep();
        let sweeper = Command::new("setsid")
            .args(["sh", "-c", SWEEP, "sh", &cgroup])
            .arg(&dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut containerd = Self {
            dir,
            cgroup,
            child: None,
            sweeper,
        };
        std::fs::write(containerd.dir.join("config.toml"), containerd.config()).unwrap();
        containerd.run();
        let images = images::archive(&containerd.dir);
        for namespace in ["default", "k8s.io"] {
            containerd.ctr(&[
                "-n",
                namespace,
                "images",
                "import",
                images.to_str().unwrap(),
            ]);
        }
        containerd
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.join("containerd.sock")
    }

    /// A directory for logs and whatever else the test needs.
    pub fn scratch(&self) -> &Path {
        &self.dir
    }

    /// The configuration of a node that uses it.
    pub fn node_config(&self) -> String {
        format!("[containers]\ncontainerd = {:?}\n", self.socket())
    }

    /// Ends the daemon; what runs goes on.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Starts the daemon, for the first time or again.
    pub fn run(&mut self) {
        let mut child = Command::new("unshare")
            .args(["--mount", "sh", "-c", RUN, "sh", &self.cgroup])
            .arg(&self.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = child.stderr.take().unwrap();
        self.child = Some(child);
        wait_for_boot(stderr);
    }

    /// What containerd's own command prints.
    pub fn ctr(&self, args: &[&str]) -> String {
        let socket = self.socket();
        let address = ["ctr", "--address", socket.to_str().unwrap()];
        let command = [&address, args].concat();
        let output = if args.contains(&"--tty") {
            // It wants a terminal of its own.
            let quoted = |word: &&str| format!("'{}'", word.replace('\'', r"'\''"));
            let line = command.iter().map(quoted).collect::<Vec<_>>().join(" ");
            Command::new("script")
                .args(["-qec", &line, "/dev/null"])
                .output()
        } else {
            Command::new(command[0]).args(&command[1..]).output()
        };
        let output = output.expect("ctr is missing; scripts/setup-test installs containerd");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "ctr {args:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a container in the namespace `default`, with further options of `ctr run`.
    pub fn run_container(&self, id: &str, options: &[&str], command: &[&str]) {
        let cgroup = format!("/{}/{id}", self.cgroup);
        let fifos = self.dir.join("fifos");
        let fixed = ["run", "--detach", "--cgroup", &cgroup, "--fifo-dir"];
        let fifos = [fifos.to_str().unwrap()];
        let named = [BUSYBOX, id];
        self.ctr(&[&fixed[..], &fifos, options, &named, command].concat());
    }

    /// An empty network namespace with a name, as a pod's would have. It goes with containerd.
    pub fn network(&self, name: &str) -> PathBuf {
        let path = self.dir.join(name);
        std::fs::write(&path, "").unwrap();
        let containerd = self.child.as_ref().unwrap().id().to_string();
        let status = Command::new("nsenter")
            .args(["--mount", "--target", &containerd, "unshare"])
            .arg(format!("--net={}", path.display()))
            .arg("true")
            .status()
            .unwrap();
        assert!(status.success());
        path
    }

    pub async fn connect(&self) -> Channel {
        connect_unix(&self.socket()).await.unwrap()
    }

    /// Runs a pod with the host's network, named as a kubelet would name it.
    pub async fn pod(&self, name: &str) -> Pod {
        let channel = self.connect().await;
        soon("the images", self.know_images(channel.clone())).await;
        let config = PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: name.to_owned(),
                uid: format!("uid-of-{name}"),
                namespace: "shop".to_owned(),
                attempt: 0,
            }),
            log_directory: self.dir.join("pods").join(name).display().to_string(),
            labels: pod_labels(name),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: format!("/{}/{name}", self.cgroup),
                security_context: Some(LinuxSandboxSecurityContext {
                    namespace_options: Some(NamespaceOption {
                        network: NamespaceMode::Node.into(),
                        ..NamespaceOption::default()
                    }),
                    ..LinuxSandboxSecurityContext::default()
                }),
                ..LinuxPodSandboxConfig::default()
            }),
            ..PodSandboxConfig::default()
        };
        let mut client = RuntimeServiceClient::new(channel);
        let request = RunPodSandboxRequest {
            config: Some(config.clone()),
            ..RunPodSandboxRequest::default()
        };
        let sandbox = client.run_pod_sandbox(request).await.unwrap();
        Pod {
            id: sandbox.into_inner().pod_sandbox_id,
            config,
            client,
        }
    }

    /// The CRI plugin hears of images a moment after they were imported.
    async fn know_images(&self, channel: Channel) {
        let mut client = ImageServiceClient::new(channel);
        for image in [BUSYBOX, PAUSE] {
            let request = ImageStatusRequest {
                image: Some(image_spec(image)),
                ..ImageStatusRequest::default()
            };
            while client
                .image_status(request.clone())
                .await
                .unwrap()
                .into_inner()
                .image
                .is_none()
            {}
        }
    }

    fn config(&self) -> String {
        let dir = self.dir.display();
        format!(
            r#"
version = 2
root = "{dir}/root"
state = "{dir}/state"
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.internal.v1.tracing",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.tracing.processor.v1.otlp",
]
[grpc]
address = "{dir}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
restrict_oom_score_adj = true
stream_server_address = "127.0.0.1"
stream_server_port = "0"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{dir}/cni/bin"
conf_dir = "{dir}/cni/conf"
"#
        )
    }
}

impl Drop for TestContainerd {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        drop(self.sweeper.stdin.take());
        let _ = self.sweeper.wait();
    }
}

/// A pod, in which containers are started one by one.
pub struct Pod {
    pub id: String,
    config: PodSandboxConfig,
    client: RuntimeServiceClient<Channel>,
}

impl Pod {
    /// Starts a container that runs a script, and tells its id. A later attempt has a log of its
    /// own.
    pub async fn run(&mut self, name: &str, attempt: u32, script: &str) -> String {
        let id = self.create(name, attempt, script).await;
        let request = StartContainerRequest {
            container_id: id.clone(),
        };
        self.client.start_container(request).await.unwrap();
        id
    }

    async fn create(&mut self, name: &str, attempt: u32, script: &str) -> String {
        let pod = &self.config.metadata.as_ref().unwrap().name;
        let log_path = self.log_file(name, attempt);
        std::fs::create_dir_all(log_path.parent().unwrap()).unwrap();
        let mut labels = pod_labels(pod);
        labels.insert("io.kubernetes.container.name".to_owned(), name.to_owned());
        let config = ContainerConfig {
            metadata: Some(ContainerMetadata {
                name: name.to_owned(),
                attempt,
            }),
            image: Some(image_spec(BUSYBOX)),
            command: ["sh", "-c", script].map(str::to_owned).to_vec(),
            log_path: format!("{name}/{attempt}.log"),
            labels,
            ..ContainerConfig::default()
        };
        let request = CreateContainerRequest {
            pod_sandbox_id: self.id.clone(),
            config: Some(config),
            sandbox_config: Some(self.config.clone()),
        };
        let created = self.client.create_container(request).await.unwrap();
        created.into_inner().container_id
    }

    pub fn log_file(&self, name: &str, attempt: u32) -> PathBuf {
        Path::new(&self.config.log_directory).join(format!("{name}/{attempt}.log"))
    }

    pub fn client(&self) -> RuntimeServiceClient<Channel> {
        self.client.clone()
    }
}

fn pod_labels(name: &str) -> std::collections::HashMap<String, String> {
    [
        ("io.kubernetes.pod.name", name.to_owned()),
        ("io.kubernetes.pod.namespace", "shop".to_owned()),
        ("io.kubernetes.pod.uid", format!("uid-of-{name}")),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

fn image_spec(image: &str) -> ImageSpec {
    ImageSpec {
        image: image.to_owned(),
        ..ImageSpec::default()
    }
}

fn wait_for_boot(stderr: ChildStderr) {
    let (send, lines) = mpsc::channel();
    // Reads on to the end so that containerd never writes into a full or closed pipe.
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            let _ = send.send(line);
        }
    });
    let mut missing = BOOTED.to_vec();
    let mut said = String::new();
    while !missing.is_empty() {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) => {
                missing.retain(|words| !line.contains(words));
                said.push_str(&line);
                said.push('\n');
            }
            Err(_) => panic!(
                "containerd did not come up; scripts/setup-test installs it; it said:\n{said}"
            ),
        }
    }
}
