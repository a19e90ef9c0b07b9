//! The exporter itself ends, at whatever moment, and is started again.

use testkit::process_group::{Process, Spec};

use super::*;

/// The flags of the exporter that this test binary is to be, one a line.
const FLAGS: &str = "EXPORTER_TEST_VICTIM";
/// More than the exporter gives its own tasks, on a busy machine.
const GRACE: Duration = Duration::from_secs(10);

/// Not a test of its own: the exporter as a process, for the others.
#[test]
fn victim() {
    let Ok(flags) = std::env::var(FLAGS) else { return };
    tracing_subscriber::fmt().with_env_filter("warn,exporter=debug,runtime=info,kube_client=off").init();
    let flags: Vec<_> = flags.lines().map(str::to_owned).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // As `main` does; a test that fails ends with a code that is not 0.
    runtime
        .block_on(async { exporter::run(settings(&flags), runtime::shutdown::on_signals()?).await })
        .unwrap();
}

/// Runs the exporter of a rig as a process; `wrapper` is a command that runs what follows it.
pub(super) fn start(rig: &Rig, wrapper: &[&str], env: &[(&str, &str)]) -> Process {
    let exe = std::env::current_exe().unwrap().display().to_string();
    let own = [&exe, "--exact", "faults::process::victim", "--nocapture"];
    let mut words = wrapper.iter().chain(&own).map(|word| (*word).to_owned());
    let spec = Spec::new(format!("exporter-{}", rig.name), words.next().unwrap()).args(words);
    let spec = env.iter().fold(spec, |spec, (key, value)| spec.env(*key, *value));
    rig.process_group.spawn(spec.env(FLAGS, rig.flags.join("\n"))).unwrap()
}

/// SIGTERM while a write is on its way: there is the old state or the new one, and an end in order.
async fn terminated(name: &'static str, fault: Fault) {
    let happened = fault == Fault::Mute;
    let Some(mut rig) = Rig::start(name).await else { return };
    let exporter = start(&rig, &[], &[]);
    rig.arrives().await;
    rig.proxy.fail("PATCH", OBJECTS, 1, fault);
    rig.admit("b", &[5]);
    rig.tries(2).await;
    if happened {
        rig.arrives().await;
    }
    let exit = exporter.terminate(GRACE).await.unwrap();
    assert_eq!(exit.code(), Some(0), "{}", exporter.log_tail(20));
    rig.admit("c", &[6]);
    exporter.restart().unwrap();
    rig.survived_well(Writes::Exactly(3)).await;
}

#[tokio::test]
async fn sigterm_before_the_write_has_happened() {
    terminated("sigterm-before", Fault::Silence).await;
}

#[tokio::test]
async fn sigterm_before_the_answer_to_the_write() {
    terminated("sigterm-after", Fault::Mute).await;
}

/// The write of a process that is long gone arrives when its successor has written.
#[tokio::test]
async fn sigterm_and_the_write_arrives_late() {
    let Some(mut rig) = Rig::start("sigterm-late").await else { return };
    let exporter = start(&rig, &[], &[]);
    rig.arrives().await;
    rig.proxy.fail("PATCH", OBJECTS, 1, Fault::Late);
    rig.admit("b", &[5]);
    rig.tries(2).await;
    assert_eq!(exporter.terminate(GRACE).await.unwrap().code(), Some(0));
    rig.release("a");
    exporter.restart().unwrap();
    rig.arrives().await;
    rig.proxy.heal();
    rig.admit("c", &[6]);
    rig.survived_well(Writes::Exactly(4)).await;
}

#[tokio::test]
async fn sigkill_during_a_write() {
    let Some(mut rig) = Rig::start("sigkill").await else { return };
    let exporter = start(&rig, &[], &[]);
    rig.arrives().await;
    for (name, cpu, fault) in [("b", 5, Fault::Silence), ("c", 6, Fault::Mute)] {
        let before = rig.writes();
        let happened = fault == Fault::Mute;
        rig.proxy.fail("PATCH", OBJECTS, 1, fault);
        rig.admit(name, &[cpu]);
        rig.tries(before + 1).await;
        if happened {
            rig.arrives().await;
        }
        exporter.restart().unwrap();
        rig.arrives().await;
    }
    rig.survived_well(Writes::Exactly(4)).await;
}

/// Pods come and go while no exporter runs. A start without a change writes nothing.
#[tokio::test]
async fn restarted_while_pods_change() {
    let Some(mut rig) = Rig::start("restarted").await else { return };
    let exporter = start(&rig, &[], &[]);
    rig.arrives().await;
    for round in 0..3 {
        exporter.kill();
        rig.admit(&format!("b{round}"), &[4 + round]);
        if round == 1 {
            rig.release("a");
        }
        exporter.restart().unwrap();
        rig.arrives().await;
        rig.is_ready().await;
        exporter.restart().unwrap();
        rig.health_says("[+]publish ok").await;
        rig.is_ready().await;
    }
    rig.survived_well(Writes::Exactly(4)).await;
}

#[tokio::test]
async fn sigterm_while_the_kubelet_does_not_answer() {
    let Some(mut rig) = Rig::start("sigterm-silent").await else { return };
    let exporter = start(&rig, &[], &[]);
    rig.arrives().await;
    rig.kubelet.fail(KubeletFault::Silent);
    let before = rig.kubelet.calls();
    rig.admit("b", &[5]);
    until("asked", async || (rig.kubelet.calls() > before).then_some(())).await;
    assert_eq!(exporter.terminate(GRACE).await.unwrap().code(), Some(0));
    rig.kubelet.fail(KubeletFault::None);
    exporter.restart().unwrap();
    rig.survived_well(Writes::Exactly(2)).await;
}
