//! The cgroup files and values that implement each limit, in v1 and v2.

use std::fmt;

use super::layout::Controller;
use crate::limits::{IoLimit, Limits};

/// A value for one file of a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) controller: Controller,
    pub(super) file: &'static str,
    pub(super) value: String,
}

fn setting(controller: Controller, file: &'static str, value: impl fmt::Display) -> Setting {
    Setting {
        controller,
        file,
        value: format!("{value}"),
    }
}

/// Translates limits to v2 files, in the order in which they have to be written.
pub(super) fn v2(limits: &Limits) -> Vec<Setting> {
    use Controller::{Cpu, Cpuset, Io, Memory, Pids};
    let mut settings = Vec::new();
    if let Some(shares) = limits.cpu_shares {
        settings.push(setting(Cpu, "cpu.weight", shares.weight()));
    }
    if let Some(max) = limits.cpu_max {
        let value = format!("{} {}", max.quota, max.period);
        settings.push(setting(Cpu, "cpu.max", value));
    }
    if let Some(cpus) = &limits.cpus {
        settings.push(setting(Cpuset, "cpuset.cpus", cpus.as_str()));
    }
    if let Some(mems) = &limits.mems {
        settings.push(setting(Cpuset, "cpuset.mems", mems.as_str()));
    }
    let memory = &limits.memory;
    for (file, bytes) in [
        ("memory.min", memory.min),
        ("memory.low", memory.low),
        ("memory.high", memory.high),
        ("memory.max", memory.max),
    ] {
        if let Some(bytes) = bytes {
            settings.push(setting(Memory, file, bytes));
        }
    }
    if let Some(pids) = limits.pids {
        settings.push(setting(Pids, "pids.max", pids));
    }
    for limit in &limits.io {
        settings.push(setting(Io, "io.max", io_max(limit)));
    }
    settings
}

/// Formats a device and its limits as one line: `8:0 rbps=1048576 wiops=50`.
fn io_max(limit: &IoLimit) -> String {
    let rates = limit.rates();
    let mut line = limit.device().to_string();
    for (name, rate) in [
        ("rbps", rates.read_bytes),
        ("wbps", rates.write_bytes),
        ("riops", rates.read_operations),
        ("wiops", rates.write_operations),
    ] {
        if let Some(rate) = rate {
            line += &format!(" {name}={rate}");
        }
    }
    line
}

/// Translates limits to v1 files; fails with the limit that v1 does not support.
pub(super) fn v1(limits: &Limits) -> Result<Vec<Setting>, &'static str> {
    use Controller::{Cpu, Cpuset, Io, Memory, Pids};
    let mut settings = Vec::new();
    if let Some(shares) = limits.cpu_shares {
        settings.push(setting(Cpu, "cpu.shares", shares.shares()));
    }
    if let Some(max) = limits.cpu_max {
        settings.push(setting(Cpu, "cpu.cfs_period_us", max.period));
        settings.push(setting(Cpu, "cpu.cfs_quota_us", max.quota));
    }
    if let Some(cpus) = &limits.cpus {
        settings.push(setting(Cpuset, "cpuset.cpus", cpus.as_str()));
    }
    if let Some(mems) = &limits.mems {
        settings.push(setting(Cpuset, "cpuset.mems", mems.as_str()));
    }
    if limits.memory.min.is_some() {
        return Err("a memory minimum (memory.min)");
    }
    if limits.memory.high.is_some() {
        return Err("a memory throttle (memory.high)");
    }
    if let Some(low) = limits.memory.low {
        settings.push(setting(Memory, "memory.soft_limit_in_bytes", low));
    }
    if let Some(max) = limits.memory.max {
        settings.push(setting(Memory, "memory.limit_in_bytes", max));
    }
    if let Some(pids) = limits.pids {
        settings.push(setting(Pids, "pids.max", pids));
    }
    for limit in &limits.io {
        let rates = limit.rates();
        for (file, rate) in [
            ("blkio.throttle.read_bps_device", rates.read_bytes),
            ("blkio.throttle.write_bps_device", rates.write_bytes),
            ("blkio.throttle.read_iops_device", rates.read_operations),
            ("blkio.throttle.write_iops_device", rates.write_operations),
        ] {
            if let Some(rate) = rate {
                settings.push(setting(Io, file, format!("{} {rate}", limit.device())));
            }
        }
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{CpuMax, CpuShares, Device, IoLimits, IoRates, MemoryLimits};

    fn io(minor: u32, rates: IoRates) -> IoLimit {
        IoLimit::new(Device::new(8, minor).unwrap(), rates).unwrap()
    }

    #[test]
    fn limits_translate_to_v1_and_v2_files() {
        let all = IoRates {
            read_bytes: Some(1),
            write_bytes: Some(2),
            read_operations: Some(3),
            write_operations: Some(4),
        };
        let one = IoRates {
            write_bytes: Some(5),
            ..IoRates::default()
        };
        let limits = Limits {
            io: IoLimits::new(vec![io(0, all), io(16, one)]).unwrap(),
            cpu_shares: CpuShares::new(1024).unwrap(),
            cpu_max: CpuMax::new(50_000, None).unwrap(),
            memory: MemoryLimits {
                max: Some(1 << 20),
                ..MemoryLimits::default()
            },
            pids: Some(9),
            ..Limits::default()
        };
        let written = |settings: Vec<Setting>| -> Vec<String> {
            let line = |setting: Setting| format!("{}={}", setting.file, setting.value);
            settings.into_iter().map(line).collect()
        };
        assert_eq!(
            written(v2(&limits)),
            [
                "cpu.weight=39",
                "cpu.max=50000 100000",
                "memory.max=1048576",
                "pids.max=9",
                "io.max=8:0 rbps=1 wbps=2 riops=3 wiops=4",
                "io.max=8:16 wbps=5",
            ]
        );
        assert_eq!(
            written(v1(&limits).unwrap()),
            [
                "cpu.shares=1024",
                "cpu.cfs_period_us=100000",
                "cpu.cfs_quota_us=50000",
                "memory.limit_in_bytes=1048576",
                "pids.max=9",
                "blkio.throttle.read_bps_device=8:0 1",
                "blkio.throttle.write_bps_device=8:0 2",
                "blkio.throttle.read_iops_device=8:0 3",
                "blkio.throttle.write_iops_device=8:0 4",
                "blkio.throttle.write_bps_device=8:16 5",
            ]
        );
    }

    #[test]
    fn a_limit_without_a_v1_equivalent_is_an_error() {
        let mut limits = Limits::default();
        limits.memory.high = Some(1);
        assert!(v1(&limits).is_err());
    }
}
