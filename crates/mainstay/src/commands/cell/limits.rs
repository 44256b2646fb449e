//! What a cell may use and what it shares, as options of `cell allocate` and `run`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use mainstay_api::runtime::{Cell, CellLimits, IoLimit, Namespace};

use mainstay_client::format::parse_size;

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "The cell")]
pub struct Limits {
    /// Processor time at most: 1.5 is one and a half processors
    #[arg(long, value_name = "N", value_parser = cpu_max)]
    cpus: Option<i64>,

    /// Weight against other cells when processors are busy; 1024 is the usual
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=262_144))]
    cpu_shares: Option<u64>,

    /// Only these processors: 0-3,7
    #[arg(long, value_name = "LIST")]
    cpuset: Option<String>,

    /// Only memory of these nodes: 0-1
    #[arg(long, value_name = "LIST")]
    mems: Option<String>,

    /// Memory at most: 64M, 2G; a process that asks for more is killed
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    memory: Option<u64>,

    /// Memory beyond which the cell is slowed down
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    memory_high: Option<u64>,

    /// Memory taken from the cell only when there is nothing else to take
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    memory_low: Option<u64>,

    /// Memory never taken from the cell
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    memory_min: Option<u64>,

    /// Processes and threads at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pids: Option<u64>,

    /// Reads and writes of a device in a second: /dev/sda:rbps=10M,wbps=1M,riops=100,wiops=50
    #[arg(long, value_name = "DEVICE:LIMITS", value_parser = io)]
    io: Vec<IoLimit>,

    /// What the cell has in common with the host instead of its own
    #[arg(long, value_enum, value_name = "NAMESPACE", value_delimiter = ',')]
    share: Vec<Share>,

    /// Users of its own: root inside is nobody outside
    #[arg(long)]
    user_namespace: bool,

    /// The host name inside [default: the last part of the cell's name]
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

impl Limits {
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

/// Microseconds in each tenth of a second, which is the period the node takes.
fn cpu_max(text: &str) -> Result<i64, String> {
    let seconds = text.parse().ok().and_then(|cpus: f64| {
        let cpus = Duration::try_from_secs_f64(cpus).ok()?;
        i64::try_from(cpus.as_micros() / 10).ok()
    });
    match seconds {
        None => Err("write a number of processors: 2, 0.5".to_owned()),
        Some(..1000) => Err("the least is 0.01".to_owned()),
        Some(micros) => Ok(micros),
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    match parse_size(text).map(u64::try_from) {
        Ok(Ok(1..)) => parse_size(text).map(i64::unsigned_abs),
        Ok(_) => Err("write a size of more than nothing: 64M, 2G".to_owned()),
        Err(wrong) => Err(wrong),
    }
}

fn io(text: &str) -> Result<IoLimit, String> {
    const FORM: &str = "write DEVICE:rbps=10M,wbps=1M,riops=100,wiops=50";
    // The device may be two numbers with a colon between them.
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
        let (place, value) = match key {
            "rbps" => (&mut limit.read_bytes, bytes(value)?),
            "wbps" => (&mut limit.write_bytes, bytes(value)?),
            "riops" => (&mut limit.read_operations, operations(value)?),
            "wiops" => (&mut limit.write_operations, operations(value)?),
            _ => return Err(format!("{key:?} is no limit of a device; {FORM}")),
        };
        if *place != 0 {
            return Err(format!("{key} is given twice"));
        }
        *place = value;
    }
    Ok(limit)
}

fn operations(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(number @ 1..) => Ok(number),
        _ => Err(format!("{text:?} is no number of operations a second")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Options {
        #[command(flatten)]
        limits: Limits,
    }

    fn cell(options: &str) -> Result<Cell, clap::Error> {
        let words = std::iter::once("test").chain(options.split_whitespace());
        Ok(Options::try_parse_from(words)?.limits.cell("c"))
    }

    #[test]
    fn without_options_nothing_is_limited() {
        let expected = Cell {
            name: "c".to_owned(),
            ..Cell::default()
        };
        assert_eq!(cell("").unwrap(), expected);
    }

    #[test]
    fn every_option_has_its_place() {
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
    fn what_makes_no_limit_is_refused() {
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
