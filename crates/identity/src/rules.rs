//! The authorizer's table: which role each method needs and whether calling it is audited.
//!
//! Permissions are decided nowhere else. A method without a row needs the admin role and is audited,
//! so that a missing row never grants access.

use crate::caller::Caller;
use crate::roles::Role;

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// The full gRPC path; `*` in the rule for methods without a row.
    pub method: &'static str,
    /// The lowest role that may call it.
    pub role: Role,
    /// True if calls go to the audit log: they change the machine or read secrets.
    pub audited: bool,
}

const fn reads(method: &'static str) -> Rule {
    Rule {
        method,
        role: Role::Reader,
        audited: false,
    }
}

const fn signs_in_or_out(method: &'static str) -> Rule {
    Rule {
        method,
        role: Role::Reader,
        audited: true,
    }
}

const fn operates(method: &'static str) -> Rule {
    Rule {
        method,
        role: Role::Operator,
        audited: true,
    }
}

const fn administers(method: &'static str) -> Rule {
    Rule {
        method,
        role: Role::Admin,
        audited: true,
    }
}

/// The rule for a method without a row.
const UNLISTED: Rule = administers("*");

/// Every method with a rule of its own, in byte order of the path. The six methods of the OS
/// service are served under the machine service too and need the same roles there; the same holds
/// for cells and their output under the names of later clients.
pub const RULES: &[Rule] = &[
    administers("/aurae.cells.v0.CellService/Allocate"),
    administers("/aurae.cells.v0.CellService/Free"),
    reads("/aurae.cells.v0.CellService/List"),
    administers("/aurae.cells.v0.CellService/Start"),
    administers("/aurae.cells.v0.CellService/Stop"),
    reads("/aurae.discovery.v0.DiscoveryService/Discover"),
    reads("/aurae.observe.v0.ObserveService/GetAuraeDaemonLogStream"),
    reads("/aurae.observe.v0.ObserveService/GetPosixSignalsStream"),
    reads("/aurae.observe.v0.ObserveService/GetSubProcessStream"),
    reads("/grpc.health.v1.Health/Check"),
    reads("/grpc.health.v1.Health/List"),
    reads("/grpc.health.v1.Health/Watch"),
    reads("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"),
    reads("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"),
    administers("/machine.MachineService/ApplyConfiguration"),
    administers("/machine.MachineService/Bootstrap"),
    reads("/machine.MachineService/CPUFreqStats"),
    reads("/machine.MachineService/CPUInfo"),
    reads("/machine.MachineService/Containers"),
    administers("/machine.MachineService/Copy"),
    reads("/machine.MachineService/DiskStats"),
    reads("/machine.MachineService/DiskUsage"),
    reads("/machine.MachineService/Dmesg"),
    reads("/machine.MachineService/Events"),
    reads("/machine.MachineService/Hostname"),
    administers("/machine.MachineService/Kubeconfig"),
    reads("/machine.MachineService/List"),
    reads("/machine.MachineService/LoadAvg"),
    reads("/machine.MachineService/Logs"),
    reads("/machine.MachineService/LogsContainers"),
    reads("/machine.MachineService/Memory"),
    reads("/machine.MachineService/Mounts"),
    reads("/machine.MachineService/Netstat"),
    reads("/machine.MachineService/NetworkDeviceStats"),
    administers("/machine.MachineService/PacketCapture"),
    reads("/machine.MachineService/Processes"),
    administers("/machine.MachineService/Read"),
    operates("/machine.MachineService/Reboot"),
    administers("/machine.MachineService/Recover"),
    administers("/machine.MachineService/Reset"),
    operates("/machine.MachineService/Restart"),
    administers("/machine.MachineService/Rollback"),
    reads("/machine.MachineService/ServiceList"),
    operates("/machine.MachineService/ServiceRestart"),
    operates("/machine.MachineService/ServiceStart"),
    operates("/machine.MachineService/ServiceStop"),
    operates("/machine.MachineService/Shutdown"),
    reads("/machine.MachineService/Stats"),
    reads("/machine.MachineService/SystemStat"),
    administers("/machine.MachineService/Upgrade"),
    reads("/machine.MachineService/Version"),
    reads("/mainstay.NodeService/Cgroups"),
    administers("/mainstay.NodeService/Configuration"),
    reads("/mainstay.NodeService/Slots"),
    administers("/mainstay.NodeService/UploadImage"),
    reads("/network.NetworkService/Interfaces"),
    reads("/network.NetworkService/Routes"),
    reads("/observe.Observe/GetAuraeDaemonLogStream"),
    reads("/observe.Observe/GetSubProcessStream"),
    reads("/os.OSService/Containers"),
    reads("/os.OSService/Dmesg"),
    reads("/os.OSService/Memory"),
    reads("/os.OSService/Processes"),
    operates("/os.OSService/Restart"),
    reads("/os.OSService/Stats"),
    administers("/runtime.CellService/Allocate"),
    administers("/runtime.CellService/Attach"),
    administers("/runtime.CellService/Free"),
    reads("/runtime.CellService/List"),
    administers("/runtime.CellService/Start"),
    administers("/runtime.CellService/Stop"),
    administers("/schedule.ScheduleService/Destroy"),
    administers("/schedule.ScheduleService/Disable"),
    administers("/schedule.ScheduleService/Enable"),
    administers("/schedule.ScheduleService/Run"),
    reads("/schedule.ScheduleService/ShowDisabled"),
    reads("/schedule.ScheduleService/ShowEnabled"),
    reads("/services.auth.AuthService/CheckToken"),
    signs_in_or_out("/services.auth.AuthService/Login"),
    signs_in_or_out("/services.auth.AuthService/Logout"),
    reads("/stats.StatsService/GetClusterNodes"),
    reads("/stats.StatsService/GetClusterRadar"),
    reads("/stats.StatsService/GetClusterResources"),
    reads("/stats.StatsService/GetClusterStats"),
    reads("/storage.StorageService/Disks"),
    reads("/time.TimeService/Time"),
    operates("/time.TimeService/TimeCheck"),
    reads("/v1alpha.PublicAPI/GetInfo"),
    reads("/v1alpha.PublicAPI/GetLogs"),
    reads("/v1alpha.PublicAPI/InspectImage"),
    reads("/v1alpha.PublicAPI/InspectPod"),
    reads("/v1alpha.PublicAPI/ListImages"),
    reads("/v1alpha.PublicAPI/ListPods"),
    reads("/v1alpha.PublicAPI/ListenEvents"),
];

/// The rule for a method, given as its full gRPC path.
pub fn rule(method: &str) -> Rule {
    RULES
        .binary_search_by(|row| row.method.cmp(method))
        .ok()
        .and_then(|found| RULES.get(found))
        .copied()
        .unwrap_or(UNLISTED)
}

/// More of a method's name is not repeated in an error.
const MAX_SHOWN_CHARS: usize = 128;

/// The caller lacks the role the method needs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not authorized: {method} needs {needs}, {}", standing(.caller, *.has))]
pub struct Denied {
    /// The method that was called, cut if it is very long.
    pub method: String,
    /// The role it needs.
    pub needs: Role,
    /// The caller's name, when there is an identity at all.
    pub caller: Option<String>,
    /// The caller's highest role.
    pub has: Option<Role>,
}

fn standing(caller: &Option<String>, has: Option<Role>) -> String {
    match (caller, has) {
        (Some(name), Some(role)) => format!("{name} has {role}"),
        (Some(name), None) => format!("{name} has no role"),
        (None, _) => "the caller has no identity".to_owned(),
    }
}

/// Decides whether the caller may call the method, and returns its rule if so.
pub fn authorize(caller: Option<&Caller>, method: &str) -> Result<Rule, Denied> {
    let rule = rule(method);
    let has = caller.and_then(|caller| caller.role);
    if has >= Some(rule.role) {
        return Ok(rule);
    }
    Err(Denied {
        // The caller's text, which goes into the answer.
        method: method.chars().take(MAX_SHOWN_CHARS).collect(),
        needs: rule.role,
        caller: caller.map(|caller| caller.name.clone()),
        has,
    })
}
