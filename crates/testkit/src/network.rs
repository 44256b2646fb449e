use std::path::Path;
use std::process::Command;

use crate::NamespaceHolder;

/// Machines on a switch, each a network namespace: `10.77.0.1` and so on.
pub struct TestNetwork {
    switch: NamespaceHolder,
    machines: Vec<NamespaceHolder>,
}

/// A network namespace, by the PID of a process in it. Does not keep it alive.
#[derive(Clone, Copy)]
pub struct NetworkNamespace {
    holder: u32,
}

impl TestNetwork {
    /// Connects `count` machines.
    pub fn of_machines(count: usize) -> Self {
        let namespace = || NamespaceHolder::unshare(&["--net"], "ip link set lo up", &[]);
        let network = Self {
            switch: namespace(),
            machines: (0..count).map(|_| namespace()).collect(),
        };
        let switch = NetworkNamespace::of(&network.switch);
        switch.ip("link add switch type bridge");
        switch.ip("link set switch up");
        for (index, holder) in network.machines.iter().enumerate() {
            let (port, pid) = (port(index), holder.pid());
            switch.ip(&format!(
                "link add {port} type veth peer name eth0 netns {pid}"
            ));
            switch.ip(&format!("link set {port} master switch up"));
            let (machine, address) = (network.machine(index), Self::address(index));
            machine.ip(&format!("address add {address}/24 dev eth0"));
            machine.ip("link set eth0 up");
        }
        network
    }

    pub fn address(index: usize) -> String {
        format!("10.77.0.{}", index + 1)
    }

    pub fn machine(&self, index: usize) -> NetworkNamespace {
        NetworkNamespace::of(&self.machines[index])
    }

    /// Takes the machine's port at the switch down: packets are dropped, no connection is reset.
    pub fn cut(&self, index: usize) {
        let port = port(index);
        NetworkNamespace::of(&self.switch).ip(&format!("link set {port} down"));
    }

    /// Takes the port up again.
    pub fn mend(&self, index: usize) {
        let port = port(index);
        NetworkNamespace::of(&self.switch).ip(&format!("link set {port} up"));
    }
}

fn port(index: usize) -> String {
    format!("port{index}")
}

impl NetworkNamespace {
    fn of(holder: &NamespaceHolder) -> Self {
        Self {
            holder: holder.pid(),
        }
    }

    /// A command that runs in the namespace, as the process itself and not as a child of another.
    pub fn command(self, program: &Path) -> Command {
        NamespaceHolder::command_in(self.holder, "--net", program)
    }

    fn ip(self, arguments: &str) {
        let mut ip = self.command(Path::new("ip"));
        ip.args(arguments.split(' '));
        let status = ip.status().unwrap();
        assert!(
            status.success(),
            "ip {arguments}: {status} (scripts/setup-test installs iproute2)"
        );
    }
}
