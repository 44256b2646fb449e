//! CPU usage.

use mainstay_api::machine::{CpuStat, SystemStat};

use crate::rates::{CpuUsage, History};

#[derive(Debug)]
pub struct Cpu {
    /// All CPUs together; `None` until there are two samples.
    pub total: Option<CpuUsage>,
    /// Each CPU, in the kernel's order.
    pub cores: Vec<Option<CpuUsage>>,
    /// Total usage in percent.
    pub history: History,
    sample: SystemStat,
}

impl Cpu {
    pub fn update(earlier: Option<Self>, sample: SystemStat) -> Self {
        let (before, mut history) = match earlier {
            Some(cpu) => (Some(cpu.sample), cpu.history),
            None => (None, History::default()),
        };
        let usage =
            |before: Option<&CpuStat>, now: Option<&CpuStat>| CpuUsage::between(before?, now?);
        let total = usage(
            before.as_ref().and_then(|before| before.cpu_total.as_ref()),
            sample.cpu_total.as_ref(),
        );
        let cores = (0..sample.cpu.len())
            .map(|core| {
                usage(
                    before.as_ref().and_then(|before| before.cpu.get(core)),
                    sample.cpu.get(core),
                )
            })
            .collect();
        if let Some(total) = total {
            history.push(total.busy);
        }
        Self {
            total,
            cores,
            history,
            sample,
        }
    }

    /// Returns the boot time in unix seconds.
    pub fn boot_time(&self) -> u64 {
        self.sample.boot_time
    }
}
