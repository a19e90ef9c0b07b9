//! Quick search by hand: `search PROGRAM SEED SESSIONS [MINOR]`.
use differential::{compare::compare, generate::session, minimise::minimise, oracle::Oracle, tally::Tally};
use std::sync::mpsc::sync_channel;
use topology::kubelet::profile::Minor;

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let program = std::path::PathBuf::from(&args[1]);
    let (seed, count): (u64, u64) = (args[2].parse()?, args[3].parse()?);
    let minor = match args.get(4).map(String::as_str) {
        Some("34") => Minor::V34,
        Some("35") => Minor::V35,
        Some("37") => Minor::V37,
        _ => Minor::V36,
    };
    let mut oracle = Oracle::spawn(&program)?;
    let mut tally = Tally::default();
    let _ = sync_channel::<()>(1);
    let begin = std::time::Instant::now();
    let mut shown = 0;
    for number in 0..count {
        let s = session(seed, number, minor);
        oracle.send(&s)?;
        let answers = oracle.answers(&s)?;
        match compare(&s, &answers, minor, &mut tally) {
            Ok(None) => {}
            Ok(Some(d)) => {
                tally.mismatches += 1;
                if shown < 3 {
                    shown += 1;
                    let small = minimise(&s, |c| {
                        oracle.send(c).unwrap();
                        let a = oracle.answers(c).unwrap();
                        matches!(compare(c, &a, minor, &mut Tally::default()), Ok(Some(_)))
                    });
                    oracle.send(&small)?;
                    let a = oracle.answers(&small)?;
                    let d2 = compare(&small, &a, minor, &mut Tally::default())?;
                    show(number, d.step, &small, &a, &d2)?;
                }
            }
            Err(e) => {
                tally.mismatches += 1;
                if shown < 6 {
                    shown += 1;
                    println!("session {number}: error {e:#}");
                }
            }
        }
    }
    println!("{}", serde_json::to_string(&tally)?);
    println!("{} admissions in {:?}", tally.admissions, begin.elapsed());
    Ok(())
}

fn show(
    number: u64,
    step: usize,
    small: &differential::session::Session,
    answers: &[serde_json::Value],
    d: &Option<differential::compare::Difference>,
) -> anyhow::Result<()> {
    println!("=== session {number} step {step}");
    std::fs::write(format!("/tmp/diff-{number}.json"), serde_json::to_string_pretty(small)?)?;
    for n in &small.machine.topology {
        println!("zone {} mem {} pages {:?} dist {:?}", n.node_id, n.memory >> 20, n.hugepages, n.distances);
        for c in n.cores.iter().flatten() {
            print!(" {:?}s{}u{:?}", c.thread_ids, c.socket_id, c.uncore_caches.as_ref().map(|u| u[0].id));
        }
        println!();
    }
    println!("{}", small.kubelet);
    println!("{}", serde_json::to_string(&small.devices)?);
    for st in &small.steps {
        match st {
            differential::session::Step::Admit { pod } => {
                println!("{} {}", pod["metadata"]["uid"], pod["spec"])
            }
            o => println!("{o:?}"),
        }
    }
    for x in answers {
        println!("  {x}");
    }
    println!("{d:#?}");
    Ok(())
}
