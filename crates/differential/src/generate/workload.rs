//! Random pods, and what becomes of them.

use node::kubelet::machine::MachineInfo;
use serde_json::{Map, Value, json};

use super::Dice;
use crate::respondent::RespondentKind;
use sim::admit::session::{Plugin, Step};
use topology::resource::ResourceName;

const MIB: u64 = 1 << 20;

/// What pods of a session may ask for.
struct Sizes<'a> {
    zones: usize,
    /// CPUs of the largest zone, and of the machine.
    zone_cpus: u64,
    all_cpus: u64,
    /// Mebibytes of a zone.
    zone_memory: u64,
    /// Sizes of huge pages in KiB.
    pages: Vec<u64>,
    devices: &'a [Plugin],
    /// Whole cores are worth asking for.
    threads: u64,
    /// Most resources that are aligned at once, so that the kubelet's merge stays quick.
    aligned: usize,
    memory_managed: bool,
    pod_level: bool,
    /// Pods that are managed as a whole may have devices. A real kubelet hands these out when containers start.
    late_devices: bool,
}

pub(super) fn steps(
    dice: &mut Dice,
    respondent: RespondentKind,
    machine: &MachineInfo,
    kubelet: &Value,
    devices: &[Plugin],
) -> Vec<Step> {
    // One resource more multiplies the kubelet's combinations by its sets of zones.
    let thorough = machine.topology.len() <= 5 && dice.percent(3);
    let sizes = sizes(respondent, machine, kubelet, devices, thorough);
    let count = if thorough { dice.between(4, 12) } else { dice.between(20, 90) };
    let mut steps = Vec::new();
    let mut alive: Vec<Value> = Vec::new();
    let pressure = dice.between(2, 14) as usize;
    let resizes = match respondent {
        RespondentKind::Oracle => dice.pick(&[0, 0, 25]),
        RespondentKind::Kubelets => 0, // The rig's container runtime has no cgroups to resize.
    };
    for number in 0..count {
        if !alive.is_empty() && (alive.len() > pressure || dice.percent(25)) {
            let at = dice.between(0, alive.len() as u64 - 1) as usize;
            steps.push(Step::Remove { uid: text(&alive.swap_remove(at)["metadata"]["uid"]) });
        }
        if !alive.is_empty() && dice.percent(resizes) {
            let at = dice.between(0, alive.len() as u64 - 1) as usize;
            resize(dice, &mut alive[at]);
            steps.push(Step::Resize { pod: alive[at].clone() });
        }
        if dice.percent(2) {
            // A real kubelet may admit its pods before a plugin is back, or not: only the one can be made certain.
            let late = dice.percent(30) || respondent == RespondentKind::Kubelets;
            steps.push(Step::Restart { plugins: !late });
        }
        let pod = pod(dice, &sizes, &format!("u{number}"));
        steps.push(Step::Admit { pod: pod.clone() });
        alive.push(pod);
    }
    steps
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Other amounts of CPU or memory for some containers. The QoS class stays, as the API server demands.
fn resize(dice: &mut Dice, pod: &mut Value) {
    if !pod["spec"]["resources"].is_null() {
        return; // The kubelet changes resources of pods as a whole with a gate that is off.
    }
    for container in pod["spec"]["containers"].as_array_mut().into_iter().flatten() {
        let resources = &mut container["resources"];
        let name = dice.pick(&["cpu", "memory"]);
        let (limit, request) = (text(&resources["limits"][name]), text(&resources["requests"][name]));
        if limit.is_empty() || dice.percent(40) {
            continue;
        }
        let share = dice.pick(&[50, 80, 100, 120, 200, 900]);
        let amount = match name {
            "cpu" => format!("{}m", millis(&limit) * share / 100 + 1),
            _ => format!("{}Mi", amount(&json!(limit)) * share / 100 + 1),
        };
        if request == limit {
            resources["requests"][name] = json!(amount);
        }
        resources["limits"][name] = json!(amount);
    }
}

/// Thousandths of CPUs, as this module writes them.
fn millis(text: &str) -> u64 {
    let number = |text: &str| text.parse().unwrap_or(1);
    text.strip_suffix('m').map_or_else(|| number(text) * 1000, number)
}

fn sizes<'a>(
    respondent: RespondentKind,
    machine: &MachineInfo,
    kubelet: &Value,
    devices: &'a [Plugin],
    thorough: bool,
) -> Sizes<'a> {
    let cpus = |node: &node::kubelet::machine::Node| {
        node.cores.iter().flatten().map(|core| core.thread_ids.len() as u64).sum::<u64>()
    };
    let zones = machine.topology.len();
    let single = kubelet["topologyManagerPolicy"] == "single-numa-node";
    Sizes {
        zones,
        zone_cpus: machine.topology.iter().map(cpus).max().unwrap_or(1),
        all_cpus: machine.topology.iter().map(cpus).sum(),
        zone_memory: machine.topology.iter().map(|node| node.memory).max().unwrap_or(0) / MIB,
        pages: machine.topology[0].hugepages.iter().flatten().map(|pages| pages.page_size).collect(),
        devices,
        threads: (machine.num_cores / machine.num_physical_cores.max(1)).max(1) as u64,
        aligned: aligned(zones, single) + usize::from(thorough),
        memory_managed: kubelet["memoryManagerPolicy"] == "Static",
        pod_level: kubelet["featureGates"]["PodLevelResourceManagers"] == true,
        late_devices: respondent == RespondentKind::Oracle,
    }
}

/// Most resources aligned at once, so that the kubelet looks at a few thousand combinations of hints: with `n` zones it
/// has up to `2^n - 1` for each resource, or `n` under `single-numa-node`.
fn aligned(zones: usize, single: bool) -> usize {
    match zones {
        0..=2 => 5,
        3 if single => 5,
        3 => 4,
        4 if single => 5,
        4 => 3,
        5..=8 if single => 4,
        5..=8 => 2,
        _ if single => 3,
        _ => 1,
    }
}

fn pod(dice: &mut Dice, sizes: &Sizes<'_>, uid: &str) -> Value {
    let quality = dice.between(0, 99);
    let inits = dice.pick(&[0, 0, 0, 1, 1, 2]);
    let apps = dice.pick(&[1, 1, 1, 2, 2, 3]);
    let small = apps + inits > 2;
    let mut names = Vec::new();
    if dice.percent(35) && !sizes.devices.is_empty() {
        names.push(dice.pick(&[0, sizes.devices.len() - 1]));
    }
    let pages = (!sizes.pages.is_empty() && dice.percent(40)).then(|| dice.pick(&sizes.pages));
    let mut budget = sizes.aligned.saturating_sub(1 + usize::from(sizes.memory_managed));
    let pages = pages.filter(|_| budget > 0);
    budget -= usize::from(pages.is_some() && sizes.memory_managed);
    names.truncate(budget);
    let ask = Ask { quality, small, pages, devices: &names };
    let init: Vec<Value> = (0..inits)
        .map(|at| {
            let mut container = container(dice, sizes, &format!("i{at}"), &ask);
            if dice.percent(30) {
                container["restartPolicy"] = json!("Always");
            }
            container
        })
        .collect();
    let app: Vec<Value> = (0..apps).map(|at| container(dice, sizes, &format!("c{at}"), &ask)).collect();
    let mut spec = json!({"containers": app});
    if !init.is_empty() {
        spec["initContainers"] = json!(init);
    }
    let whole = dice.percent(if sizes.pod_level { 40 } else { 3 });
    if whole && (names.is_empty() || sizes.late_devices) {
        pod_level(dice, sizes, &mut spec);
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": uid, "namespace": "ns", "uid": uid}, "spec": spec})
}

/// Resources of the pod as a whole, of which some containers state no part. Without the managers for it the kubelet
/// leaves such a pod alone.
fn pod_level(dice: &mut Dice, sizes: &Sizes<'_>, spec: &mut Value) {
    let mut rest = dice.between(0, 2);
    for list in ["initContainers", "containers"] {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            if rest > 0 && dice.percent(50) {
                rest -= 1;
                if let Some(resources) = container["resources"].as_object_mut() {
                    resources.retain(|_, of| {
                        of.as_object_mut().is_some_and(|of| {
                            of.retain(|name, _| name.contains('/'));
                            !of.is_empty()
                        })
                    });
                }
            }
        }
    }
    let sum = |name: &str| -> u64 {
        let all = ["initContainers", "containers"]
            .into_iter()
            .flat_map(|list| spec[list].as_array().into_iter().flatten());
        all.map(|container| amount(&container["resources"]["limits"][name])).sum()
    };
    // An API server takes no pod whose containers ask for more than the whole.
    let cpus = (sum("cpu") + dice.pick(&[0, 0, 1, 2, 3])).min(sizes.all_cpus).max(sum("cpu")).max(1);
    let memory = sum("memory") + dice.pick(&[0, 0, 100, 1000]) + 1;
    let mut limits = Map::new();
    limits.insert("cpu".into(), json!(cpus.to_string()));
    limits.insert("memory".into(), json!(format!("{memory}Mi")));
    for size in &sizes.pages {
        if let Ok(name) = ResourceName::hugepages(size * 1024)
            && sum(name.as_str()) > 0
        {
            limits.insert(name.to_string(), json!(sum(name.as_str()).to_string()));
        }
    }
    spec["resources"] = json!({"limits": limits, "requests": limits});
}

/// Whole CPUs, mebibytes, or bytes, as this module writes them; parts of a CPU are rounded up.
fn amount(value: &Value) -> u64 {
    let text = value.as_str().unwrap_or("0");
    let number = |text: &str| text.parse::<u64>().unwrap_or(1);
    match text.strip_suffix('m') {
        Some(milli) => number(milli).div_ceil(1000),
        None => text.strip_suffix("Mi").map_or_else(|| number(text), number),
    }
}

/// What the containers of a pod have in common.
struct Ask<'a> {
    quality: u64,
    small: bool,
    pages: Option<u64>,
    devices: &'a [usize],
}

fn container(dice: &mut Dice, sizes: &Sizes<'_>, name: &str, ask: &Ask<'_>) -> Value {
    let mut limits = Map::new();
    let cpus = cpus(dice, sizes, ask.small);
    let memory = if dice.percent(12) {
        dice.between(1, sizes.zone_memory * sizes.zones.min(3) as u64)
    } else {
        dice.between(1, (sizes.zone_memory / 3).max(2))
    };
    limits.insert("cpu".into(), json!(cpus.to_string()));
    limits.insert("memory".into(), json!(format!("{memory}Mi")));
    if let Some(size) = ask.pages.filter(|_| dice.percent(75))
        && let Ok(resource) = ResourceName::hugepages(size * 1024)
    {
        let pages = if size > 4096 { 1 } else { dice.pick(&[1, 8, 64, 200, 400]) };
        limits.insert(resource.to_string(), json!((pages * size * 1024).to_string()));
    }
    for at in ask.devices {
        if dice.percent(20) {
            continue;
        }
        let count = dice.pick(&[1, 1, 1, 2, 2, 3]);
        limits.insert(sizes.devices[*at].resource.clone(), json!(count.to_string()));
    }
    let resources = match ask.quality {
        0..=77 => json!({"limits": limits, "requests": limits}),
        78..=85 => {
            limits.insert("cpu".into(), json!(dice.pick(&["500m", "1500m", "250m"])));
            json!({"limits": limits, "requests": limits})
        }
        86..=94 => {
            let mut requests = limits.clone();
            requests.insert("memory".into(), json!("1Mi"));
            json!({"limits": limits, "requests": requests})
        }
        _ => {
            limits.retain(|name, _| name.contains('/'));
            json!({"limits": limits, "requests": limits})
        }
    };
    json!({"name": name, "image": "i", "resources": resources})
}

fn cpus(dice: &mut Dice, sizes: &Sizes<'_>, small: bool) -> u64 {
    let most = if small { (sizes.zone_cpus / 2).max(1) } else { sizes.zone_cpus };
    let count = match dice.between(0, 9) {
        0..=5 => dice.between(1, most),
        6..=7 => dice.between(1, 3),
        8 => dice.between(most, sizes.all_cpus.max(most)),
        _ => sizes.zone_cpus + dice.between(1, 4),
    };
    // Whole cores, mostly: other numbers are soon refused under full-pcpus-only.
    if dice.percent(60) { count.div_ceil(sizes.threads) * sizes.threads } else { count }
}
