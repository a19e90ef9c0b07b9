//! `cargo xtask bench device-plugin`: how fast our device plugin answers, how long a list the kubelet takes at
//! once, what it costs.
//!
//! In: our program, built with the profile `dist`, or the one that is given. Out: one row for each number of
//! devices. The kubelet is real; allocations come from this benchmark, over the plugin's own socket, as a
//! kubelet would send them.
//!
//! How it is measured:
//! - A list is accepted when the kubelet's podresources has all its devices: from the start of the process, and
//!   from the change of the configuration that makes one of them unhealthy.
//! - Allocations of two devices each, one after the other on each connection, for as many as are asked for.
//! - Memory is the highest `VmRSS` of a sample a second: at rest, right after the load, at rest again; and `VmHWM`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use api::goduration::GoDuration;
use node::deviceplugin::wire;
use node::deviceplugin::wire::device_plugin_client::DevicePluginClient;
use node::podresources::wire::AllocatableResourcesRequest;
use node::podresources::wire::pod_resources_lister_client::PodResourcesListerClient;
use serde::Serialize;
use sim::record::percentile;
use testkit::cluster::Cluster;
use testkit::env;
use testkit::machine::Machine;
use testkit::process_group::{Process, Spec};
use tonic::transport::{Channel, Endpoint};

use super::rig::build_dist;

/// The resource.
const RESOURCE: &str = "bench.example/device";
/// Its socket.
const SOCKET: &str = "bench.example_device.sock";
/// How long the kubelet may take to know a list.
const PATIENCE: Duration = Duration::from_secs(60);
/// What it may cost, in KiB.
const RSS_LIMIT_KIB: u64 = 8 << 10;
/// Allocations in a second, at least.
const RATE_LIMIT: f64 = 1000.0;

/// Speed and footprint of the device plugin.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example:\n  cargo xtask bench device-plugin --devices 4096 --json --check")]
pub(crate) struct Args {
    /// So many devices; may be repeated
    #[arg(long, value_name = "COUNT", default_values_t = [8, 4096])]
    devices: Vec<usize>,
    /// Allocations
    #[arg(long, default_value_t = 20_000)]
    allocations: usize,
    /// Connections at the same time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// How long rest is measured, after as much time to calm down
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = GoDuration::parse_std)]
    idle: Duration,
    /// One JSON object for each number of devices instead of text
    #[arg(long)]
    json: bool,
    /// Fail with fewer than 1,000 allocations a second or more than 8 MiB at rest
    #[arg(long)]
    check: bool,
    /// The tholepin binary to measure; built with the profile `dist` when not given
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// What was measured.
#[derive(Debug, Serialize)]
struct Row {
    devices: usize,
    /// From the start of the process until the kubelet had all devices.
    accepted_ms: f64,
    /// From the change of one device until the kubelet had it.
    updated_ms: f64,
    allocations_per_second: f64,
    allocation_p50_us: u64,
    allocation_p99_us: u64,
    rss_mib: f64,
    rss_after_load_mib: f64,
    rss_at_rest_after_mib: f64,
    rss_peak_mib: f64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let binary = match &args.binary {
        Some(path) => path.canonicalize().with_context(|| format!("{}", path.display()))?,
        None => build_dist()?,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        for devices in &args.devices {
            let row = measure(args, *devices, &binary).await?;
            print(&row, args.json)?;
            if args.check {
                let rate = row.allocations_per_second;
                ensure!(rate >= RATE_LIMIT, "{rate:.0} allocations a second, fewer than {RATE_LIMIT}");
                let limit = RSS_LIMIT_KIB as f64 / 1024.0;
                ensure!(row.rss_mib <= limit, "{:.1} MiB at rest, more than {limit}", row.rss_mib);
            }
        }
        Ok(())
    })
}

async fn measure(args: &Args, devices: usize, binary: &Path) -> anyhow::Result<Row> {
    ensure!(devices >= 2, "--devices {devices}: allowed are 2 and more");
    let rig = env::check().map_err(|reason| anyhow::anyhow!("the benchmark needs the rig: {reason}"))?;
    let machine = Machine::new().zones(2).cpus_per_zone(8);
    eprintln!("starting a cluster for {devices} devices");
    let cluster = Cluster::builder().machines([machine]).start(&rig).await?;
    let kubelet = cluster.nodes()[0].kubelet();
    let folder = kubelet.root_dir().join("device-plugins");
    let config = cluster.control().process_group().dir().join("devices.yaml");
    write(&config, devices, None)?;
    let began = Instant::now();
    let spec = Spec::new("device-plugin", binary)
        .args(["device-plugin", "--http-bind-address=0", "--node-name=node-0"])
        .arg(format!("--config={}", config.display()))
        .arg(format!("--socket-dir={}", folder.display()))
        .arg(format!("--sysfs={}", kubelet.machine().sys().display()));
    let process = cluster.spawn(spec)?;
    let socket = cluster.nodes()[0].podresources_socket();
    known(&socket, devices).await.with_context(|| process.log_tail(10))?;
    let accepted_ms = began.elapsed().as_secs_f64() * 1e3;
    let began = Instant::now();
    write(&config, devices, Some(0))?;
    known(&socket, devices - 1).await?;
    let updated_ms = began.elapsed().as_secs_f64() * 1e3;

    let rss_mib = rest(&process, args.idle).await?;
    eprintln!("allocating");
    let (allocations_per_second, times) = load(&folder.join(SOCKET), args, devices).await?;
    let mib = |kib: u64| kib as f64 / 1024.0;
    let after = process.memory()?;
    Ok(Row {
        devices,
        accepted_ms,
        updated_ms,
        allocations_per_second,
        allocation_p50_us: percentile(&times, 50),
        allocation_p99_us: percentile(&times, 99),
        rss_mib,
        rss_after_load_mib: mib(after.rss_kib),
        rss_at_rest_after_mib: rest(&process, args.idle).await?,
        rss_peak_mib: mib(process.memory()?.peak_kib),
    })
}

/// The configuration: devices in two zones, one of them unhealthy if wanted.
fn write(path: &Path, devices: usize, unhealthy: Option<usize>) -> anyhow::Result<()> {
    let device = |number: usize| {
        let healthy = unhealthy != Some(number);
        format!("      - {{id: device-{number}, numanode: {}, healthy: {healthy}}}\n", number % 2)
    };
    let list: String = (0..devices).map(device).collect();
    let text = format!(
        "version: v1alpha1\nresources:\n- name: {RESOURCE}\n  discovery:\n    list:\n     devices:\n      \"*\":\n{list}"
    );
    let new = path.with_extension("new");
    std::fs::write(&new, text)?;
    std::fs::rename(&new, path).with_context(|| format!("replacing {}", path.display()))
}

/// Waits until the kubelet has so many healthy devices.
async fn known(socket: &Path, devices: usize) -> anyhow::Result<()> {
    let mut lister = PodResourcesListerClient::new(dial(socket).await?).max_decoding_message_size(16 << 20);
    let began = Instant::now();
    let mut last = 0;
    while began.elapsed() < PATIENCE {
        // The kubelet answers a hundred such questions a second, and refuses more.
        tokio::time::sleep(Duration::from_millis(15)).await;
        let Ok(answer) = lister.get_allocatable_resources(AllocatableResourcesRequest {}).await else {
            continue;
        };
        let found = answer.into_inner().devices.into_iter().filter(|found| found.resource_name == RESOURCE);
        last = found.map(|found| found.device_ids.len()).sum();
        if last == devices {
            return Ok(());
        }
    }
    bail!("the kubelet has {last} of {devices} devices after {PATIENCE:?}")
}

async fn dial(socket: &Path) -> anyhow::Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()))?;
    endpoint.connect().await.with_context(|| format!("{}", socket.display()))
}

/// The most that is resident while nothing happens.
async fn rest(process: &Process, idle: Duration) -> anyhow::Result<f64> {
    tokio::time::sleep(idle).await;
    let (began, mut most) = (Instant::now(), 0);
    while began.elapsed() < idle {
        most = most.max(process.memory()?.rss_kib);
        tokio::time::sleep(Duration::from_secs(1).min(idle)).await;
    }
    Ok(most as f64 / 1024.0)
}

/// Allocations in a second, and how long each took, in microseconds, ascending.
async fn load(socket: &Path, args: &Args, devices: usize) -> anyhow::Result<(f64, Vec<u64>)> {
    let connections = usize::from(args.connections);
    let each = args.allocations.div_ceil(connections);
    let one = async |first: usize| -> anyhow::Result<Vec<u64>> {
        let mut client = DevicePluginClient::new(dial(socket).await?);
        let mut times = Vec::with_capacity(each);
        for number in 0..each {
            // Never the unhealthy one, which is the first.
            let at = (first + number * connections) % (devices - 1);
            let mut ids = vec![format!("device-{}", at + 1)];
            ids.extend((devices > 2).then(|| format!("device-{}", (at + 1) % (devices - 1) + 1)));
            let one = wire::ContainerAllocateRequest { devices_ids: ids };
            let began = Instant::now();
            client.allocate(wire::AllocateRequest { container_requests: vec![one] }).await?;
            times.push(u64::try_from(began.elapsed().as_micros())?);
        }
        Ok(times)
    };
    let began = Instant::now();
    let times = futures::future::try_join_all((0..connections).map(one)).await?;
    let took = began.elapsed().as_secs_f64();
    let mut times = times.concat();
    times.sort_unstable();
    Ok((times.len() as f64 / took, times))
}

fn print(row: &Row, json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string(row)?);
        return Ok(());
    }
    println!(
        "{:>5} devices  accepted after {:.0} ms, a change after {:.0} ms  {:.0} allocations/s (p50 {} us, p99 {} us)  \
         RSS {:.1} MiB (after the load {:.1}, at rest again {:.1}, peak {:.1})",
        row.devices,
        row.accepted_ms,
        row.updated_ms,
        row.allocations_per_second,
        row.allocation_p50_us,
        row.allocation_p99_us,
        row.rss_mib,
        row.rss_after_load_mib,
        row.rss_at_rest_after_mib,
        row.rss_peak_mib,
    );
    Ok(())
}
