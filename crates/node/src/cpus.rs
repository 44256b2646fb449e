//! CPUs (`/proc/cpuinfo`) and their frequencies (`/sys`).

use std::io;
use std::path::Path;

/// One CPU, as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cpu {
    words: Vec<(String, String)>,
}

impl Cpu {
    /// Empty for fields this architecture does not have.
    pub fn get(&self, name: &str) -> &str {
        let found = self.words.iter().find(|(key, _)| key == name);
        found.map_or("", |(_, value)| value.as_str())
    }
}

pub fn cpus() -> io::Result<Vec<Cpu>> {
    Ok(parse(&std::fs::read_to_string("/proc/cpuinfo")?))
}

/// Parses paragraphs of `name : value`; one without `processor` describes the whole machine.
fn parse(text: &str) -> Vec<Cpu> {
    text.split("\n\n")
        .map(|paragraph| Cpu {
            words: paragraph
                .lines()
                .filter_map(|line| line.split_once(':'))
                .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
                .collect(),
        })
        .filter(|cpu| !cpu.get("processor").is_empty())
        .collect()
}

/// Frequencies in kHz; zeros where unknown, as on most virtual machines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Frequency {
    pub current: u64,
    pub minimum: u64,
    pub maximum: u64,
    pub governor: String,
}

/// Returns the frequencies of each CPU, in order.
pub fn frequencies(processors: usize) -> Vec<Frequency> {
    (0..processors)
        .map(|number| {
            let dir = format!("/sys/devices/system/cpu/cpu{number}/cpufreq");
            let read = |file: &str| {
                std::fs::read_to_string(Path::new(&dir).join(file)).unwrap_or_default()
            };
            let number = |file: &str| read(file).trim().parse().unwrap_or(0);
            Frequency {
                current: number("scaling_cur_freq"),
                minimum: number("cpuinfo_min_freq"),
                maximum: number("cpuinfo_max_freq"),
                governor: read("scaling_governor").trim().to_owned(),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_paragraph_is_a_cpu() {
        let text = "processor\t: 0\nmodel name\t: A: B\n\nprocessor\t: 1\n\nHardware\t: board\n";
        let cpus = parse(text);
        assert_eq!(cpus.len(), 2);
        assert_eq!(cpus[0].get("model name"), "A: B");
        assert_eq!(cpus[1].get("model name"), "");
    }

    #[test]
    fn this_machine_has_at_least_the_cpus_this_process_may_use() {
        let cpus = cpus().unwrap();
        assert!(cpus.len() >= std::thread::available_parallelism().unwrap().get());
        assert_eq!(frequencies(cpus.len()).len(), cpus.len());
    }
}
