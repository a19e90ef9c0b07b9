//! `cargo xtask bench failover`: two replicas of our scheduler, of which the leader is killed again and again under
//! load.
//!
//! The API server is real, and nodes have no kubelets, so that nothing but scheduling takes time. Each pod has to be
//! bound, once, and no node may get more pods than it has room for.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::ensure;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client};
use serde::Serialize;
use sim::record::percentile;
use testkit::process_group::{Process, Spec};

use super::bound_pods::BoundPods;
use super::rig::{Shape, TOPO_AWARE, TestBed, build_dist, get};
use super::schedule;

/// Two replicas of our scheduler, of which the leader is killed again and again under load.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:\n  cargo xtask bench failover\n  \
    cargo xtask bench failover --seconds 60 --gracefully --json")]
pub(crate) struct Args {
    /// How long pods are created
    #[arg(long, default_value_t = 300)]
    seconds: u32,
    /// Seconds from one kill of the leader to the next
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    kill_every: u64,
    /// Pods a second
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// Number of nodes, which together have room for a tenth more pods than there are
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
    /// End the leader with SIGTERM, as a rolling update does, instead of SIGKILL
    #[arg(long)]
    gracefully: bool,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// The tholepin binary to measure; built with the profile `dist` when not given
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// The result.
#[derive(Debug, Serialize)]
struct Row {
    seconds: u32,
    kills: usize,
    pods: usize,
    bound: usize,
    bound_twice: usize,
    overfull_nodes: usize,
    /// The longest time in which no pod was bound.
    longest_gap_ms: u64,
    /// Time from a kill to the next binding.
    handover_p50_ms: Option<u64>,
    handover_max_ms: Option<u64>,
}

/// How long the last pods may take.
const REST: Duration = Duration::from_secs(90);
/// How long a replica may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(20);

/// A scheduler with its port of metrics.
struct Replica {
    process: Process,
    port: u16,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let binary = match &args.binary {
        Some(path) => path.clone(),
        None => build_dist()?,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let row = runtime.block_on(measure(args, binary))?;
    if args.json {
        println!("{}", serde_json::to_string(&row)?);
    } else {
        println!("{row:#?}");
    }
    ensure!(row.bound == row.pods, "{} of {} pods were bound", row.bound, row.pods);
    ensure!(row.bound_twice == 0 && row.overfull_nodes == 0, "pods were bound twice, or nodes are overfull");
    Ok(())
}

async fn measure(args: &Args, binary: PathBuf) -> anyhow::Result<Row> {
    let bed = TestBed::start(Shape::NONE, false, binary.clone()).await?;
    let client = bed.cluster.client().await?;
    let count = args.seconds * args.rate;
    let room = (count * 11 / 10).div_ceil(args.nodes);
    schedule::create_nodes(&client, args.nodes as usize, room).await?;
    let bound = BoundPods::watch(&client);
    let mut replicas = Vec::new();
    for at in 0..2 {
        replicas.push(start(&bed, &binary, at)?);
    }
    let create = create(args, &client, count);
    let kill = kill(args, &mut replicas, &bound);
    let (created, kills) = tokio::join!(create, kill);
    created?;
    let kills = kills?;
    let deadline = Instant::now() + REST;
    while bound.count() < count as usize && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(row(args, &bound, count as usize, room as usize, &kills))
}

fn start(bed: &TestBed, binary: &PathBuf, at: usize) -> anyhow::Result<Replica> {
    let port = testkit::port::free()?;
    let kubeconfig = bed.cluster.control().kubeconfig().display().to_string();
    let spec = Spec::new(format!("tholepin-scheduler-{at}"), binary)
        .args(["scheduler", "-v4", "--kubeconfig", kubeconfig.as_str()])
        .args(["--http-bind-address".to_owned(), format!("127.0.0.1:{port}")]);
    Ok(Replica { process: bed.cluster.spawn(spec)?, port })
}

/// Creates pods at a steady rate.
async fn create(args: &Args, client: &Client, count: u32) -> anyhow::Result<()> {
    let api: Api<Pod> = Api::default_namespaced(client.clone());
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / args.rate);
    for at in 0..count {
        ticks.tick().await;
        api.create(&PostParams::default(), &schedule::pod(&format!("pod-{at}"), (TOPO_AWARE, false))?)
            .await?;
    }
    Ok(())
}

/// Kills the leader every so often while pods are created; when.
async fn kill(args: &Args, replicas: &mut [Replica], bound: &BoundPods) -> anyhow::Result<Vec<Instant>> {
    let end = Instant::now() + Duration::from_secs(args.seconds.into());
    let mut kills = Vec::new();
    let mut ticks = tokio::time::interval(Duration::from_secs(args.kill_every));
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let Some(leader) = leader(replicas).await else {
            if Instant::now() > end {
                return Ok(kills);
            }
            continue;
        };
        if Instant::now() > end {
            return Ok(kills);
        }
        let before = bound.count();
        kills.push(Instant::now());
        if args.gracefully {
            leader.process.terminate(GRACE).await?;
        }
        leader.process.restart()?;
        eprintln!("leader ended after {before} bindings");
    }
}

/// The replica that says it leads.
async fn leader(replicas: &[Replica]) -> Option<&Replica> {
    for replica in replicas {
        let metrics = get(replica.port, "/metrics").await.unwrap_or_default();
        let leads = |line: &str| {
            line.starts_with("leader_election_master_status{") && line.trim_end().ends_with(" 1")
        };
        if metrics.lines().any(leads) {
            return Some(replica);
        }
    }
    None
}

/// The result of a run.
fn row(args: &Args, bound: &BoundPods, pods: usize, room: usize, kills: &[Instant]) -> Row {
    let seen = bound.seen();
    let mut on_nodes: BTreeMap<&str, usize> = BTreeMap::new();
    seen.places.values().for_each(|place| *on_nodes.entry(&place.node).or_default() += 1);
    let mut times: Vec<Instant> = seen.places.values().map(|place| place.at).collect();
    times.sort_unstable();
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let gaps = times.windows(2).map(|pair| ms(pair[1] - pair[0]));
    let after = |kill: &Instant| times.get(times.partition_point(|at| at <= kill)).map(|at| ms(*at - *kill));
    let mut handovers: Vec<u64> = kills.iter().filter_map(after).collect();
    handovers.sort_unstable();
    Row {
        seconds: args.seconds,
        kills: kills.len(),
        pods,
        bound: seen.places.len(),
        bound_twice: seen.moved,
        overfull_nodes: on_nodes.values().filter(|pods| **pods > room).count(),
        longest_gap_ms: gaps.max().unwrap_or(0),
        handover_p50_ms: (!handovers.is_empty()).then(|| percentile(&handovers, 50)),
        handover_max_ms: handovers.last().copied(),
    }
}
