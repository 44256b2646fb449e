//! Counters of the kernel since boot: `/proc/stat`.

use std::io;

use crate::processes::Units;

/// CPU time in seconds: user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice.
pub type CpuTimes = [f64; 10];

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Counters {
    /// Unix seconds.
    pub boot_time: u64,
    pub cpu_total: CpuTimes,
    pub cpus: Vec<CpuTimes>,
    pub interrupts: Vec<u64>,
    pub interrupts_total: u64,
    pub context_switches: u64,
    pub processes_created: u64,
    pub processes_running: u64,
    pub processes_blocked: u64,
    pub soft_interrupts_total: u64,
    /// Hi, timer, net tx, net rx, block, irq poll, tasklet, sched, hrtimer, rcu.
    pub soft_interrupts: [u64; 10],
}

impl Counters {
    pub fn read() -> io::Result<Self> {
        let text = std::fs::read_to_string("/proc/stat")?;
        Ok(Self::parse(&text, Units::of_this_kernel().ticks_per_second))
    }

    /// Parses the file; unknown lines are skipped, missing counters are zero.
    fn parse(text: &str, ticks_per_second: u64) -> Self {
        let mut counters = Self::default();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let name = words.next().unwrap_or_default();
            let mut numbers = words.map(|word| word.parse::<u64>().unwrap_or(0));
            match name {
                "cpu" => counters.cpu_total = times(numbers, ticks_per_second),
                "intr" => {
                    counters.interrupts_total = numbers.next().unwrap_or(0);
                    counters.interrupts = numbers.collect();
                }
                "softirq" => {
                    counters.soft_interrupts_total = numbers.next().unwrap_or(0);
                    for (counter, number) in counters.soft_interrupts.iter_mut().zip(numbers) {
                        *counter = number;
                    }
                }
                "ctxt" => counters.context_switches = numbers.next().unwrap_or(0),
                "btime" => counters.boot_time = numbers.next().unwrap_or(0),
                "processes" => counters.processes_created = numbers.next().unwrap_or(0),
                "procs_running" => counters.processes_running = numbers.next().unwrap_or(0),
                "procs_blocked" => counters.processes_blocked = numbers.next().unwrap_or(0),
                cpu if cpu.starts_with("cpu") => {
                    counters.cpus.push(times(numbers, ticks_per_second));
                }
                _ => {}
            }
        }
        counters
    }
}

fn times(ticks: impl Iterator<Item = u64>, ticks_per_second: u64) -> CpuTimes {
    let mut times = CpuTimes::default();
    for (time, ticks) in times.iter_mut().zip(ticks) {
        #[expect(
            clippy::cast_precision_loss,
            reason = "seconds with a fraction are wanted"
        )]
        let seconds = ticks as f64 / ticks_per_second.max(1) as f64;
        *time = seconds;
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_line_is_parsed() {
        let text = "cpu  100 2 3 400 5 6 7 8 9 10\ncpu0 50 0 0 0\ncpu1 50\nintr 9 4 0 5\nctxt 7\n\
                    btime 1700000000\nprocesses 12\nprocs_running 2\nprocs_blocked 1\n\
                    softirq 55 1 2 3 4 5 6 7 8 9 10\nfuture 1 2\n";
        let counters = Counters::parse(text, 100);
        assert!(
            (counters.cpu_total[0] - 1.0).abs() < 1e-9
                && (counters.cpu_total[3] - 4.0).abs() < 1e-9
        );
        assert_eq!(counters.cpus.len(), 2);
        assert_eq!(
            (counters.interrupts_total, counters.interrupts),
            (9, vec![4, 0, 5])
        );
        assert_eq!(counters.boot_time, 1_700_000_000);
        assert_eq!(counters.soft_interrupts, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        assert_eq!(
            (counters.processes_running, counters.processes_blocked),
            (2, 1)
        );
    }

    #[test]
    fn this_machine_has_cpus_and_a_boot_time() {
        let counters = Counters::read().unwrap();
        assert!(!counters.cpus.is_empty() && counters.boot_time > 0);
    }

    proptest! {
        #[test]
        fn no_text_causes_a_panic(text in "(?s).{0,300}") {
            let _ = Counters::parse(&text, 100);
        }
    }
}
