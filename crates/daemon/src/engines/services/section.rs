//! `[services.NAME]` of the configuration file and its drop-ins.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use mainstay_cells::{
    BadLimit, CpuList, CpuMax, Device, IoLimit, IoLimits, IoRates, Limits, MemoryLimits, Namespace,
};
use mainstay_supervisor::{
    BackOff, BadDefinition, Definition, HealthCheck, Operation, Probe, RestartPolicy, ServiceName,
    check,
};
use serde::{Deserialize, Serialize};

use super::values::{Command, CpuCount, HttpTarget, Identity, StopSignal, VariableName};
use crate::config::{ByteSize, Span};

/// `[services.NAME]`
pub type ServicesSection = BTreeMap<ServiceName, ServiceSection>;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceSection {
    pub command: Command,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub after: BTreeSet<ServiceName>,
    #[serde(default)]
    pub requires: BTreeSet<ServiceName>,
    #[serde(default = "yes")]
    pub enabled: bool,
    #[serde(default)]
    pub oneshot: bool,
    #[serde(default = "always")]
    pub restart: RestartPolicy,
    #[serde(default)]
    pub back_off: BackOffSection,
    pub health: Option<HealthSection>,
    #[serde(default)]
    pub environment: BTreeMap<VariableName, String>,
    #[serde(default)]
    pub environment_files: Vec<PathBuf>,
    pub working_directory: Option<String>,
    pub user: Option<Identity>,
    pub group: Option<Identity>,
    #[serde(default)]
    pub limits: LimitsSection,
    #[serde(default)]
    pub isolate: BTreeSet<Namespace>,
    pub stop_signal: Option<StopSignal>,
    pub stop_grace: Option<Span>,
    pub log_file_size: Option<ByteSize>,
    pub log_total_size: Option<ByteSize>,
    #[serde(default = "all_operations")]
    pub allow: BTreeSet<Operation>,
}

/// `[services.NAME.back_off]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BackOffSection {
    pub initial: Span,
    pub max: Span,
    pub reset_after: Span,
}

/// `[services.NAME.health]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedHealth")]
pub struct HealthSection {
    #[serde(flatten)]
    probe: ProbeSection,
    delay: Span,
    period: Span,
    timeout: Span,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
enum ProbeSection {
    Exec {
        exec: Command,
    },
    Tcp {
        tcp: SocketAddr,
    },
    Http {
        http: HttpTarget,
    },
    Grpc {
        grpc: SocketAddr,
        #[serde(skip_serializing_if = "String::is_empty")]
        service: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UncheckedHealth {
    exec: Option<Command>,
    tcp: Option<SocketAddr>,
    http: Option<HttpTarget>,
    grpc: Option<SocketAddr>,
    service: Option<String>,
    delay: Option<Span>,
    period: Option<Span>,
    timeout: Option<Span>,
}

/// `[services.NAME.limits]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsSection {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuCount>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<ByteSize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_high: Option<ByteSize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpuset: Option<CpuList>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mems: Option<CpuList>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub io: Vec<IoSection>,
}

/// `[[services.NAME.limits.io]]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IoSection {
    pub device: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_bytes: Option<ByteSize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_bytes: Option<ByteSize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_operations: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_operations: Option<u64>,
}

/// A service that can be read, but not run.
#[derive(Debug, thiserror::Error)]
pub enum BadService {
    #[error("service {service}: limits")]
    Limits {
        service: ServiceName,
        source: BadLimit,
    },
    #[error("service {service}: a limit of 0 processes lets nothing start; leave it out")]
    NoProcesses { service: ServiceName },
    #[error("the service name {service} is taken: it is a log of the node's own")]
    Reserved { service: ServiceName },
    #[error("service {service}: environment_files {} is not an absolute path", path.display())]
    RelativePath { service: ServiceName, path: PathBuf },
    #[error("service {service}: the health check has a timeout or period of 0")]
    NoTime { service: ServiceName },
    #[error(transparent)]
    Definition(#[from] BadDefinition),
}

fn yes() -> bool {
    true
}

fn always() -> RestartPolicy {
    RestartPolicy::Always
}

fn all_operations() -> BTreeSet<Operation> {
    Operation::ALL.into()
}

impl Default for BackOffSection {
    fn default() -> Self {
        let back_off = BackOff::default();
        Self {
            initial: Span(back_off.initial),
            max: Span(back_off.max),
            reset_after: Span(back_off.reset_after),
        }
    }
}

impl TryFrom<UncheckedHealth> for HealthSection {
    type Error = String;

    fn try_from(unchecked: UncheckedHealth) -> Result<Self, String> {
        let service = unchecked.service;
        let has_service = service.is_some();
        let probes = [
            unchecked.exec.map(|exec| ProbeSection::Exec { exec }),
            unchecked.tcp.map(|tcp| ProbeSection::Tcp { tcp }),
            unchecked.http.map(|http| ProbeSection::Http { http }),
            unchecked.grpc.map(|grpc| ProbeSection::Grpc {
                grpc,
                service: service.unwrap_or_default(),
            }),
        ];
        let mut probes = probes.into_iter().flatten();
        let (Some(probe), None) = (probes.next(), probes.next()) else {
            return Err("a health check is one of exec, tcp, http and grpc".to_owned());
        };
        if has_service && !matches!(probe, ProbeSection::Grpc { .. }) {
            return Err("only a grpc health check has a service".to_owned());
        }
        let default = HealthCheck::new(Probe::Exec(Vec::new()));
        let or = |span: Option<Span>, default: Duration| span.unwrap_or(Span(default));
        Ok(Self {
            probe,
            delay: or(unchecked.delay, default.delay),
            period: or(unchecked.period, default.period),
            timeout: or(unchecked.timeout, default.timeout),
        })
    }
}

impl HealthSection {
    fn check(&self) -> HealthCheck {
        let probe = match self.probe.clone() {
            ProbeSection::Exec { exec } => Probe::Exec(exec.words().to_vec()),
            ProbeSection::Tcp { tcp } => Probe::Tcp(tcp),
            ProbeSection::Http { http } => Probe::Http {
                address: http.address,
                path: http.path,
            },
            ProbeSection::Grpc { grpc, service } => Probe::Grpc {
                address: grpc,
                service,
            },
        };
        HealthCheck {
            probe,
            delay: self.delay.0,
            period: self.period.0,
            timeout: self.timeout.0,
        }
    }
}

impl LimitsSection {
    fn limits(&self) -> Result<Limits, BadLimit> {
        let io = self.io.iter().map(|io| {
            let rates = IoRates {
                read_bytes: io.read_bytes.map(|size| size.0),
                write_bytes: io.write_bytes.map(|size| size.0),
                read_operations: io.read_operations,
                write_operations: io.write_operations,
            };
            IoLimit::new(Device::find(&io.device)?, rates)
        });
        let cpu_max = match &self.cpu {
            Some(cpu) => Some(CpuMax::limited(cpu.quota_micros(), None)?),
            None => None,
        };
        let memory = MemoryLimits {
            high: self.memory_high.map(|size| size.0),
            max: self.memory.map(|size| size.0),
            ..MemoryLimits::default()
        };
        Ok(Limits {
            cpu_shares: None,
            cpu_max,
            cpus: self.cpuset.clone(),
            mems: self.mems.clone(),
            memory: memory.check()?,
            pids: self.pids,
            io: IoLimits::new(io.collect::<Result<_, _>>()?)?,
        })
    }
}

impl ServiceSection {
    /// Converts to what the supervisor runs, and checks everything that the types do not.
    pub fn definition(&self, service: &ServiceName) -> Result<Definition, BadService> {
        if crate::log::is_reserved(service.as_str()) {
            return Err(BadService::Reserved {
                service: service.clone(),
            });
        }
        let limits = self.limits.limits().map_err(|source| BadService::Limits {
            service: service.clone(),
            source,
        })?;
        if limits.pids == Some(0) {
            return Err(BadService::NoProcesses {
                service: service.clone(),
            });
        }
        if let Some(path) = self
            .environment_files
            .iter()
            .find(|path| path.is_relative())
        {
            return Err(BadService::RelativePath {
                service: service.clone(),
                path: path.clone(),
            });
        }
        let health = self.health.as_ref().map(HealthSection::check);
        if health
            .as_ref()
            .is_some_and(|check| check.timeout.is_zero() || check.period.is_zero())
        {
            return Err(BadService::NoTime {
                service: service.clone(),
            });
        }
        let environment = self.environment.iter();
        let definition = Definition {
            command: self.command.words().to_vec(),
            description: self.description.clone(),
            after: self.after.clone(),
            requires: self.requires.clone(),
            enabled: self.enabled,
            oneshot: self.oneshot,
            restart: self.restart,
            back_off: BackOff {
                initial: self.back_off.initial.0,
                max: self.back_off.max.0,
                reset_after: self.back_off.reset_after.0,
            },
            health,
            environment: environment
                .map(|(name, value)| format!("{name}={value}"))
                .collect(),
            environment_files: self.environment_files.clone(),
            working_directory: self.working_directory.clone(),
            user: self.user.as_ref().map(ToString::to_string),
            group: self.group.as_ref().map(ToString::to_string),
            limits,
            isolate: self.isolate.clone(),
            stop_signal: self.stop_signal.map(|signal| signal.0),
            stop_grace: self.stop_grace.map(|grace| grace.0),
            log_file_bytes: self.log_file_size.map(|size| size.0),
            log_total_bytes: self.log_total_size.map(|size| size.0),
            operations: self.allow.clone(),
        };
        check(service, &definition)?;
        Ok(definition)
    }
}
