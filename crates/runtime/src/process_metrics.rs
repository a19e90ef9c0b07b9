//! Metrics of the process itself: memory, CPU, file descriptors, start time.
//!
//! In: `/proc/self` at the moment of a scrape. Out: the metrics that Prometheus clients name `process_*`. Never: a
//! failed scrape; values that cannot be read are left out.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fs;

/// Clock ticks a second in `/proc`: fixed by the kernel's interface to user space on every machine we run on,
/// whatever its own timer does.
const TICKS_PER_SECOND: f64 = 100.0;

/// Collects the `process_*` metrics of the running process.
#[derive(Debug, Default)]
pub struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let mut gauge = |name, help, value: Option<f64>| match value.map(ConstGauge::new) {
            Some(gauge) => gauge.encode(encoder.encode_descriptor(name, help, None, gauge_type())?),
            None => Ok(()),
        };
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let stat = Stat::parse(&fs::read_to_string("/proc/self/stat").unwrap_or_default());
        let boot = boot_seconds(&fs::read_to_string("/proc/stat").unwrap_or_default());
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let descriptors = fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as f64);
        let started = stat.as_ref().zip(boot).map(|(stat, boot)| boot + stat.started_seconds);
        gauge("process_resident_memory_bytes", "Resident memory in bytes", bytes_of(&status, "VmRSS:"))?;
        gauge("process_virtual_memory_bytes", "Virtual memory in bytes", bytes_of(&status, "VmSize:"))?;
        gauge("process_open_fds", "Open file descriptors", descriptors)?;
        gauge("process_max_fds", "Limit of open file descriptors", descriptor_limit(&limits))?;
        gauge("process_start_time_seconds", "Start of the process, in seconds since 1970", started)?;
        let Some(stat) = stat else { return Ok(()) };
        let cpu = ConstCounter::new(stat.cpu_seconds);
        let help = "User and system CPU time spent, in seconds";
        cpu.encode(encoder.encode_descriptor("process_cpu_seconds", help, None, cpu.metric_type())?)
    }
}

/// The fields of `/proc/self/stat` that the metrics need.
#[derive(Debug, PartialEq)]
struct Stat {
    cpu_seconds: f64,
    /// Since the machine's boot.
    started_seconds: f64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The second field is the command in brackets and may hold spaces and brackets itself.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // proc(5) counts from 1 and the first field after the command is number 3.
        let ticks = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        let cpu_seconds = (ticks(14)? + ticks(15)?) / TICKS_PER_SECOND;
        Some(Self { cpu_seconds, started_seconds: ticks(22)? / TICKS_PER_SECOND })
    }
}

fn gauge_type() -> prometheus_client::metrics::MetricType {
    prometheus_client::metrics::MetricType::Gauge
}

/// The value in bytes of a line like `VmRSS:  1234 kB`.
fn bytes_of(status: &str, key: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok().map(|kib| kib * 1024.0)
}

fn boot_seconds(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn descriptor_limit(limits: &str) -> Option<f64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::registry::Registry;

    #[test]
    fn stat_survives_strange_commands_and_rubbish() {
        let tail = "S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 1 0 12345 0 0";
        let want = Some(Stat { cpu_seconds: 2.0, started_seconds: 123.45 });
        for command in ["(tholepin)", "(a b) c)", "(((", "()"] {
            let command = if command.ends_with(')') { command.to_owned() } else { format!("{command})") };
            assert_eq!(Stat::parse(&format!("77 {command} {tail}")), want, "{command}");
        }
        for rubbish in ["", "1 (x", "1 (x) S", "1 (x) S a b c d e f g h i j k l m n o p q r s t u"] {
            assert_eq!(Stat::parse(rubbish), None, "{rubbish:?}");
        }
    }

    #[test]
    fn small_files_are_parsed() {
        assert_eq!(bytes_of("VmSize:\t 9 kB\nVmRSS:\t     2048 kB\n", "VmRSS:"), Some(2_097_152.0));
        assert_eq!(bytes_of("VmRSS: many", "VmRSS:"), None);
        assert_eq!(boot_seconds("cpu 1 2\nbtime 1700000000\n"), Some(1_700_000_000.0));
        assert_eq!(descriptor_limit("Max open files    1024   524288   files\n"), Some(1024.0));
        assert_eq!(descriptor_limit("Max open files    unlimited   unlimited   files\n"), None);
    }

    #[test]
    fn a_scrape_shows_this_process() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(ProcessCollector));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
            line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
        };
        assert!(value("process_resident_memory_bytes") > 100_000.0);
        assert!(value("process_open_fds") >= 3.0);
        assert!(value("process_cpu_seconds_total") >= 0.0);
        let now = jiff::Timestamp::now().as_second() as f64;
        let age = now - value("process_start_time_seconds");
        assert!((-2.0..3600.0).contains(&age), "started {age} s ago");
    }
}
