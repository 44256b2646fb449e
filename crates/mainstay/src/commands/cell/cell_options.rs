//! Limits and namespaces of a cell, shared by `cell allocate` and `run`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use mainstay_api::runtime::{Cell, CellLimits, IoLimit, Namespace};

use mainstay_client::format::parse_size;

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Cell options")]
pub struct CellOptions {
    /// CPU limit in CPUs: 0.5, 2 [default: unlimited]
    #[arg(long, value_name = "N", value_parser = cpu_max)]
    cpus: Option<i64>,

    /// CPU weight relative to other cells, from 2 to 262144 [default: 1024]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=262_144))]
    cpu_shares: Option<u64>,

    /// Restrict to these CPUs: 0-3,7
    #[arg(long, value_name = "LIST")]
    cpuset: Option<String>,

    /// Restrict to these NUMA nodes: 0-1
    #[arg(long, value_name = "LIST")]
    mems: Option<String>,

    /// Memory limit (memory.max); processes beyond it are OOM-killed: 64M, 2G
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    memory: Option<u64>,

    /// Memory throttle limit (memory.high)
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    memory_high: Option<u64>,

    /// Best-effort memory protection (memory.low)
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    memory_low: Option<u64>,

    /// Hard memory protection (memory.min)
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    memory_min: Option<u64>,

    /// Limit of processes and threads (pids.max)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pids: Option<u64>,

    /// I/O limits of a device per second: /dev/sda:rbps=10M,wbps=1M,riops=100,wiops=50; may be
    /// repeated
    #[arg(long, value_name = "DEVICE:LIMITS", value_parser = io)]
    io: Vec<IoLimit>,

    /// Share these namespaces with the host instead of creating new ones; comma-separated
    #[arg(long, value_enum, value_name = "NAMESPACE", value_delimiter = ',')]
    share: Vec<Share>,

    /// Create a user namespace; root inside maps to an unprivileged UID
    #[arg(long)]
    user_namespace: bool,

    /// Host name inside the cell [default: the last part of the cell's name]
    #[arg(long, value_name = "NAME")]
    hostname: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Share {
    Net,
    Ipc,
    Uts,
    Pid,
    Mount,
    Cgroup,
}

impl Share {
    fn namespace(self) -> Namespace {
        match self {
            Self::Net => Namespace::Network,
            Self::Ipc => Namespace::Ipc,
            Self::Uts => Namespace::Uts,
            Self::Pid => Namespace::Pid,
            Self::Mount => Namespace::Mount,
            Self::Cgroup => Namespace::Cgroup,
        }
    }
}

impl CellOptions {
    /// Returns the cell `name` with these options.
    pub fn cell(self, name: &str) -> Cell {
        let limits = CellLimits {
            cpu_max_usec: self.cpus.unwrap_or_default(),
            cpu_period_usec: 0,
            cpus: self.cpuset.unwrap_or_default(),
            mems: self.mems.unwrap_or_default(),
            memory_min: self.memory_min.unwrap_or_default(),
            memory_low: self.memory_low.unwrap_or_default(),
            memory_high: self.memory_high.unwrap_or_default(),
            memory_max: self.memory.unwrap_or_default(),
            pids_max: self.pids.unwrap_or_default(),
            io: self.io,
        };
        Cell {
            name: name.to_owned(),
            cpu_shares: self.cpu_shares.unwrap_or_default(),
            limits: (limits != CellLimits::default()).then_some(limits),
            share: self
                .share
                .into_iter()
                .map(|share| share.namespace().into())
                .collect(),
            user_namespace: self.user_namespace,
            hostname: self.hostname.unwrap_or_default(),
        }
    }
}

/// Parses a CPU limit as microseconds per period of 100 ms, the default of the node.
fn cpu_max(text: &str) -> Result<i64, String> {
    let seconds = text.parse().ok().and_then(|cpus: f64| {
        let cpus = Duration::try_from_secs_f64(cpus).ok()?;
        i64::try_from(cpus.as_micros() / 10).ok()
    });
    match seconds {
        None => Err("write a number of CPUs: 2, 0.5".to_owned()),
        Some(..1000) => Err("the minimum is 0.01".to_owned()),
        Some(micros) => Ok(micros),
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    match parse_size(text).map(u64::try_from) {
        Ok(Ok(1..)) => parse_size(text).map(i64::unsigned_abs),
        Ok(_) => Err("the size must be greater than 0: 64M, 2G".to_owned()),
        Err(invalid) => Err(invalid),
    }
}

fn io(text: &str) -> Result<IoLimit, String> {
    const FORM: &str = "write DEVICE:rbps=10M,wbps=1M,riops=100,wiops=50";
    // A device can be MAJOR:MINOR, which contains a colon.
    let (device, limits) = text.rsplit_once(':').ok_or(FORM)?;
    if device.is_empty() {
        return Err(FORM.to_owned());
    }
    let mut limit = IoLimit {
        device: device.to_owned(),
        ..IoLimit::default()
    };
    for part in limits.split(',') {
        let (key, value) = part.split_once('=').ok_or(FORM)?;
        let (field, value) = match key {
            "rbps" => (&mut limit.read_bytes, bytes(value)?),
            "wbps" => (&mut limit.write_bytes, bytes(value)?),
            "riops" => (&mut limit.read_operations, operations(value)?),
            "wiops" => (&mut limit.write_operations, operations(value)?),
            _ => return Err(format!("{key:?} is not an I/O limit; {FORM}")),
        };
        if *field != 0 {
            return Err(format!("{key} is set twice"));
        }
        *field = value;
    }
    Ok(limit)
}

fn operations(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(number @ 1..) => Ok(number),
        _ => Err(format!("{text:?} is not a number of operations per second")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct TestCommand {
        #[command(flatten)]
        options: CellOptions,
    }

    fn cell(options: &str) -> Result<Cell, clap::Error> {
        let words = std::iter::once("test").chain(options.split_whitespace());
        Ok(TestCommand::try_parse_from(words)?.options.cell("c"))
    }

    #[test]
    fn the_default_cell_has_no_limits() {
        let expected = Cell {
            name: "c".to_owned(),
            ..Cell::default()
        };
        assert_eq!(cell("").unwrap(), expected);
    }

    #[test]
    fn every_option_sets_its_field() {
        let made = cell(
            "--cpus 1.5 --cpu-shares 512 --cpuset 0-3,7 --mems 0 --memory 64M --memory-high 48M \
             --memory-low 1G --memory-min 1k --pids 10 --io /dev/sda:rbps=1M,wiops=7 \
             --io 8:16:wbps=2,riops=3 --share net,uts --share pid --user-namespace --hostname h",
        );
        let expected = Cell {
            name: "c".to_owned(),
            cpu_shares: 512,
            limits: Some(CellLimits {
                cpu_max_usec: 150_000,
                cpu_period_usec: 0,
                cpus: "0-3,7".to_owned(),
                mems: "0".to_owned(),
                memory_min: 1 << 10,
                memory_low: 1 << 30,
                memory_high: 48 << 20,
                memory_max: 64 << 20,
                pids_max: 10,
                io: vec![
                    IoLimit {
                        device: "/dev/sda".to_owned(),
                        read_bytes: 1 << 20,
                        write_operations: 7,
                        ..IoLimit::default()
                    },
                    IoLimit {
                        device: "8:16".to_owned(),
                        write_bytes: 2,
                        read_operations: 3,
                        ..IoLimit::default()
                    },
                ],
            }),
            share: vec![
                Namespace::Network.into(),
                Namespace::Uts.into(),
                Namespace::Pid.into(),
            ],
            user_namespace: true,
            hostname: "h".to_owned(),
        };
        assert_eq!(made.unwrap(), expected);
    }

    #[test]
    fn invalid_limits_are_rejected() {
        for options in [
            "--cpus 0",
            "--cpus -1",
            "--cpus NaN",
            "--cpus inf",
            "--cpus 1e300",
            "--cpus 0.001",
            "--cpus two",
            "--cpu-shares 1",
            "--cpu-shares 262145",
            "--memory 0",
            "--memory=-1M",
            "--memory 99E",
            "--pids 0",
            "--io /dev/sda",
            "--io rbps=1",
            "--io :rbps=1",
            "--io /dev/sda:",
            "--io /dev/sda:rbps",
            "--io /dev/sda:rbps=0",
            "--io /dev/sda:speed=1",
            "--io /dev/sda:rbps=1,rbps=2",
            "--io /dev/sda:riops=1k",
            "--share everything",
        ] {
            assert!(cell(options).is_err(), "{options}");
        }
    }
}
