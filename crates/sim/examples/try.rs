//! scratch
use sim::contest::Contender; use sim::latency::Latency; use sim::machine::*; use sim::workload::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let shape: Shape = a[1].parse().unwrap();
    let nodes: usize = a[2].parse().unwrap();
    let pods: usize = a[3].parse().unwrap();
    let rate: f64 = a[4].parse().unwrap();
    let load: f64 = a[5].parse().unwrap();
    let seeds: u64 = a[6].parse().unwrap();
    let max_pending = a.get(7).and_then(|t| t.parse().ok());
    let mut latency = Latency::cluster();
    let env = |n: &str, s: &mut sim::latency::Span| if let Ok(v) = std::env::var(n) { let (a,b)=v.split_once(',').unwrap(); *s = sim::latency::Span::of(a.parse().unwrap(), b.parse().unwrap()); };
    env("STOP", &mut latency.stop); env("CLEANUP", &mut latency.cleanup); env("TAKEN", &mut latency.scan_taken); env("RELEASED", &mut latency.scan_released); env("START", &mut latency.start); env("STATUS", &mut latency.status);
    let machines = shape.machines(nodes).unwrap();
    for seed in 1..=seeds {
        let plan = Open { pods, rate, load, cpus: open_cpus(&machines), seed, max_pending, ..Open::default() }.plan().unwrap();
        for c in Contender::ALL {
            let t = std::time::Instant::now();
            let e = c.run(&plan, &machines, &latency, seed, &mut |_| {});
            let s = e.summary;
            println!("{:9} seed {seed} run {} tae {} outof {} unplaced {} p50 {:.2} p95 {:.2} max {:.2} alloc {:.3} stranded {:.1} settled {:.1}  [{:?}]", s.scheduler, s.running, s.tae, s.out_of, s.unplaced, s.p50_s, s.p95_s, s.max_s, s.allocated_share, s.stranded_cpus, s.settled_s, t.elapsed());
        }
    }
}
