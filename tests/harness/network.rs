use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Machines of our own on a switch of our own, as far as the kernel's network goes. All of it goes
/// with the processes inside, whatever becomes of the test.
pub struct TestNetwork {
    switch: Namespace,
    machines: Vec<Namespace>,
}

/// A network namespace, held by a process that ends with the test at the latest.
struct Namespace {
    holder: Child,
}

/// Names a machine's network without keeping it.
#[derive(Clone, Copy)]
pub struct NetworkOf {
    holder: u32,
}

impl TestNetwork {
    /// Machines `10.77.0.1` and so on.
    pub fn of_machines(count: usize) -> Self {
        let network = Self {
            switch: Namespace::new(),
            machines: (0..count).map(|_| Namespace::new()).collect(),
        };
        network.switch.of().ip("link add switch type bridge");
        network.switch.of().ip("link set switch up");
        for (index, machine) in network.machines.iter().enumerate() {
            let (port, pid) = (port(index), machine.holder.id());
            let switch = network.switch.of();
            switch.ip(&format!(
                "link add {port} type veth peer name eth0 netns {pid}"
            ));
            switch.ip(&format!("link set {port} master switch up"));
            let address = Self::address(index);
            machine
                .of()
                .ip(&format!("address add {address}/24 dev eth0"));
            machine.of().ip("link set eth0 up");
        }
        network
    }

    pub fn address(index: usize) -> String {
        format!("10.77.0.{}", index + 1)
    }

    pub fn machine(&self, index: usize) -> NetworkOf {
        self.machines[index].of()
    }

    /// Pulls the plug at the switch: nobody is told.
    pub fn cut(&self, index: usize) {
        let port = port(index);
        self.switch.of().ip(&format!("link set {port} down"));
    }

    pub fn mend(&self, index: usize) {
        let port = port(index);
        self.switch.of().ip(&format!("link set {port} up"));
    }
}

fn port(index: usize) -> String {
    format!("port{index}")
}

impl Namespace {
    fn new() -> Self {
        let mut holder = Command::new("unshare")
            .args(["--net", "sh", "-c"])
            .arg("ip link set lo up && echo ready && exec cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut stdout = BufReader::new(holder.stdout.take().unwrap());
        stdout.read_line(&mut said).unwrap();
        let namespace = Self { holder };
        assert_eq!(said, "ready\n", "no network namespace could be made");
        namespace
    }

    fn of(&self) -> NetworkOf {
        NetworkOf {
            holder: self.holder.id(),
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

impl NetworkOf {
    /// A command that runs on that machine's network.
    pub fn command(self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--target={}", self.holder))
            .args(["--net", "--"])
            .arg(program);
        command
    }

    fn ip(self, arguments: &str) {
        let mut ip = self.command(Path::new("ip"));
        ip.args(arguments.split(' '));
        assert!(ip.status().unwrap().success(), "ip {arguments}");
    }
}
