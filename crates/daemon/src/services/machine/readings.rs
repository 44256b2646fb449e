//! Readings of the machine: hostname, load, kernel counters, CPUs, devices.

use mainstay_api::machine::{
    CpUsFreqStats, CpUsInfo, CpuFreqStats, CpuInfo, CpuStat, DiskStat, DiskStats, Hostname,
    LoadAvg, NetDev, NetworkDeviceStats, SoftIrqStat, SystemStat,
};
use mainstay_node::counters::{Counters, CpuTimes};
use mainstay_node::cpus::{self, Cpu};
use mainstay_node::devices;
use tonic::Status;

use crate::rpc::blocking;

pub(super) fn hostname() -> Hostname {
    Hostname {
        metadata: None,
        hostname: mainstay_node::hostname(),
    }
}

pub(super) async fn load() -> Result<LoadAvg, Status> {
    let [load1, load5, load15] =
        blocking("the load averages", mainstay_node::load::load_averages).await?;
    Ok(LoadAvg {
        metadata: None,
        load1,
        load5,
        load15,
    })
}

pub(super) async fn system() -> Result<SystemStat, Status> {
    let counters = blocking("the kernel's counters", Counters::read).await?;
    let [
        hi,
        timer,
        net_tx,
        net_rx,
        block,
        block_io_poll,
        tasklet,
        sched,
        hrtimer,
        rcu,
    ] = counters.soft_interrupts;
    Ok(SystemStat {
        metadata: None,
        boot_time: counters.boot_time,
        cpu_total: Some(cpu_stat(counters.cpu_total)),
        cpu: counters.cpus.into_iter().map(cpu_stat).collect(),
        irq_total: counters.interrupts_total,
        irq: counters.interrupts,
        context_switches: counters.context_switches,
        process_created: counters.processes_created,
        process_running: counters.processes_running,
        process_blocked: counters.processes_blocked,
        soft_irq_total: counters.soft_interrupts_total,
        soft_irq: Some(SoftIrqStat {
            hi,
            timer,
            net_tx,
            net_rx,
            block,
            block_io_poll,
            tasklet,
            sched,
            hrtimer,
            rcu,
        }),
    })
}

fn cpu_stat(times: CpuTimes) -> CpuStat {
    let [
        user,
        nice,
        system,
        idle,
        iowait,
        irq,
        soft_irq,
        steal,
        guest,
        guest_nice,
    ] = times;
    CpuStat {
        user,
        nice,
        system,
        idle,
        iowait,
        irq,
        soft_irq,
        steal,
        guest,
        guest_nice,
    }
}

pub(super) async fn cpu_info() -> Result<CpUsInfo, Status> {
    let cpus = blocking("the CPUs", cpus::cpus).await?;
    Ok(CpUsInfo {
        metadata: None,
        cpu_info: cpus.iter().map(one_cpu).collect(),
    })
}

fn one_cpu(cpu: &Cpu) -> CpuInfo {
    let text = |name: &str| cpu.get(name).to_owned();
    let count = |name: &str| cpu.get(name).parse().unwrap_or(0);
    let number = |name: &str| cpu.get(name).parse().unwrap_or(0.0);
    let words = |name: &str| {
        cpu.get(name)
            .split_ascii_whitespace()
            .map(str::to_owned)
            .collect()
    };
    CpuInfo {
        processor: count("processor"),
        vendor_id: text("vendor_id"),
        cpu_family: text("cpu family"),
        model: text("model"),
        model_name: text("model name"),
        stepping: text("stepping"),
        microcode: text("microcode"),
        cpu_mhz: number("cpu MHz"),
        cache_size: text("cache size"),
        physical_id: text("physical id"),
        siblings: count("siblings"),
        core_id: text("core id"),
        cpu_cores: count("cpu cores"),
        apic_id: text("apicid"),
        initial_apic_id: text("initial apicid"),
        fpu: text("fpu"),
        fpu_exception: text("fpu_exception"),
        cpu_id_level: count("cpuid level"),
        wp: text("wp"),
        flags: words("flags"),
        bugs: words("bugs"),
        bogo_mips: number("bogomips"),
        cl_flush_size: count("clflush size"),
        cache_alignment: count("cache_alignment"),
        address_sizes: text("address sizes"),
        power_management: text("power management"),
    }
}

pub(super) async fn cpu_frequencies() -> Result<CpUsFreqStats, Status> {
    let frequencies = blocking("the CPUs", || Ok(cpus::frequencies(cpus::cpus()?.len()))).await?;
    let cpu_freq_stats = frequencies
        .into_iter()
        .map(|frequency| CpuFreqStats {
            current_frequency: frequency.current,
            minimum_frequency: frequency.minimum,
            maximum_frequency: frequency.maximum,
            governor: frequency.governor,
        })
        .collect();
    Ok(CpUsFreqStats {
        metadata: None,
        cpu_freq_stats,
    })
}

pub(super) async fn network() -> Result<NetworkDeviceStats, Status> {
    let devices = blocking("the network devices", devices::network_devices).await?;
    let total = devices::total(devices.iter());
    Ok(NetworkDeviceStats {
        metadata: None,
        total: Some(net_dev("total".to_owned(), total)),
        devices: devices
            .into_iter()
            .map(|device| net_dev(device.name, device.counters))
            .collect(),
    })
}

fn net_dev(name: String, counters: [u64; 16]) -> NetDev {
    let [
        rx_bytes,
        rx_packets,
        rx_errors,
        rx_dropped,
        rx_fifo,
        rx_frame,
        rx_compressed,
        rx_multicast,
        tx @ ..,
    ] = counters;
    let [
        tx_bytes,
        tx_packets,
        tx_errors,
        tx_dropped,
        tx_fifo,
        tx_collisions,
        tx_carrier,
        tx_compressed,
    ] = tx;
    NetDev {
        name,
        rx_bytes,
        rx_packets,
        rx_errors,
        rx_dropped,
        rx_fifo,
        rx_frame,
        rx_compressed,
        rx_multicast,
        tx_bytes,
        tx_packets,
        tx_errors,
        tx_dropped,
        tx_fifo,
        tx_collisions,
        tx_carrier,
        tx_compressed,
    }
}

pub(super) async fn disks() -> Result<DiskStats, Status> {
    let (disks, total) = blocking("the disks", || {
        let disks = devices::disks()?;
        let total = devices::total(disks.iter().filter(|disk| devices::is_whole_disk(disk)));
        Ok((disks, total))
    })
    .await?;
    Ok(DiskStats {
        metadata: None,
        total: Some(disk_stat("total".to_owned(), total)),
        devices: disks
            .into_iter()
            .map(|disk| disk_stat(disk.name, disk.counters))
            .collect(),
    })
}

fn disk_stat(name: String, counters: [u64; 15]) -> DiskStat {
    let [
        read_completed,
        read_merged,
        read_sectors,
        read_time_ms,
        rest @ ..,
    ] = counters;
    let [
        write_completed,
        write_merged,
        write_sectors,
        write_time_ms,
        rest @ ..,
    ] = rest;
    let [io_in_progress, io_time_ms, io_time_weighted_ms, rest @ ..] = rest;
    let [
        discard_completed,
        discard_merged,
        discard_sectors,
        discard_time_ms,
    ] = rest;
    DiskStat {
        name,
        read_completed,
        read_merged,
        read_sectors,
        read_time_ms,
        write_completed,
        write_merged,
        write_sectors,
        write_time_ms,
        io_in_progress,
        io_time_ms,
        io_time_weighted_ms,
        discard_completed,
        discard_merged,
        discard_sectors,
        discard_time_ms,
    }
}
