use super::*;

const SECOND: i64 = 1_000_000_000;

fn store() -> Store {
    Store::new(7, (Ipv4Addr::new(10, 0, 0, 0), 29))
}

fn pod(name: &str) -> api::PodSandboxConfig {
    let metadata =
        api::PodSandboxMetadata { name: name.to_owned(), namespace: "ns".to_owned(), ..Default::default() };
    api::PodSandboxConfig {
        metadata: Some(metadata),
        log_directory: "/logs".to_owned(),
        ..Default::default()
    }
}

fn container(name: &str, command: &str) -> api::ContainerConfig {
    api::ContainerConfig {
        metadata: Some(api::ContainerMetadata { name: name.to_owned(), attempt: 0 }),
        command: command.split_whitespace().map(str::to_owned).collect(),
        log_path: format!("{name}/0.log"),
        ..Default::default()
    }
}

/// A pod `p` whose container `c` was started at 0.
fn started(command: &str, defaults: Behaviour) -> (Store, String, String) {
    let mut store = store();
    let sandbox = store.run_sandbox(pod("p"), String::new(), 0).expect("sandbox");
    let id = store.create_container(&sandbox, container("c", command), Some(defaults), 0).expect("container");
    assert_eq!(store.container(&id).expect("there").state(SECOND), State::Created);
    store.start_container(&id, 0).expect("start");
    (store, sandbox, id)
}

fn stopping_in(seconds: u64) -> Behaviour {
    Behaviour { stop_delay: Duration::from_secs(seconds), ..Behaviour::default() }
}

#[test]
fn a_container_ends_by_itself_on_its_date() {
    let (store, _, id) = started("sleep 2; exit 3", Behaviour::default());
    let check =
        |now, expected| assert_eq!(store.container(&id).expect("there").state(now), expected, "{now}");
    check(0, State::Running);
    check(2 * SECOND - 1, State::Running);
    let exited = State::Exited { finished_at: 2 * SECOND, exit_code: 3 };
    check(2 * SECOND, exited);
    check(i64::MAX, exited);
}

#[test]
fn stopping() {
    let check = |command: &str, delay: u64, grace: u64, ends: i64, code: i32| {
        let (mut store, _, id) = started(command, stopping_in(delay));
        let at = store.stop_container(&id, Duration::from_secs(grace), SECOND).expect("stop");
        assert_eq!(at, ends, "{command:?} {delay} {grace}");
        let container = store.container(&id).expect("there");
        assert_eq!(container.state(ends - 1), State::Running, "{command:?} {delay} {grace}");
        assert_eq!(container.state(ends), State::Exited { finished_at: ends, exit_code: code });
    };
    check("", 0, 30, SECOND, 0); // asked and gone
    check("", 5, 30, 6 * SECOND, 0); // takes its time
    check("", 30, 5, 6 * SECOND, KILLED); // takes too long
    check("", 5, 0, SECOND, KILLED); // has no time
    check("sleep 3; exit 4", 5, 30, 3 * SECOND, 4); // would have ended before
}

#[test]
fn a_second_stop_can_only_shorten_the_wait() {
    let (mut store, _, id) = started("", stopping_in(20));
    let mut stop = |grace, now| store.stop_container(&id, Duration::from_secs(grace), now).expect("stop");
    assert_eq!(stop(30, 0), 20 * SECOND);
    assert_eq!(stop(30, 2 * SECOND), 20 * SECOND);
    assert_eq!(stop(1, 3 * SECOND), 4 * SECOND);
    assert_eq!(stop(30, 9 * SECOND), 4 * SECOND);
}

#[test]
fn stopping_a_sandbox_kills_and_cannot_be_undone() {
    let (mut store, sandbox, id) = started("", stopping_in(20));
    store.stop_sandbox(&sandbox, 3 * SECOND);
    store.stop_sandbox(&sandbox, 4 * SECOND);
    let killed = State::Exited { finished_at: 3 * SECOND, exit_code: KILLED };
    assert_eq!(store.container(&id).expect("there").state(3 * SECOND), killed);
    let error =
        store.create_container(&sandbox, container("d", ""), Some(Behaviour::default()), 0).unwrap_err();
    assert_eq!(error.code(), tonic::Code::FailedPrecondition);
    store.remove_sandbox(&sandbox);
    store.remove_sandbox(&sandbox);
    assert_eq!(store.container(&id).unwrap_err().code(), tonic::Code::NotFound);
    assert_eq!(store.snapshot(0).sandboxes, []);
}

#[test]
fn refusals() {
    use tonic::Code;
    let (mut store, sandbox, id) = started("", Behaviour::default());
    let mut check = |expected: Code, what: &str, call: &dyn Fn(&mut Store) -> Option<Status>| {
        assert_eq!(call(&mut store).map(|status| status.code()), Some(expected), "{what}");
    };
    let run = |config: api::PodSandboxConfig, handler: &str, store: &mut Store| {
        store.run_sandbox(config, handler.to_owned(), 0).err()
    };
    check(Code::AlreadyExists, "same pod and attempt", &|store| run(pod("p"), "", store));
    check(Code::NotFound, "handler", &|store| run(pod("q"), "kata", store));
    check(Code::InvalidArgument, "no metadata", &|store| run(api::PodSandboxConfig::default(), "", store));
    let create = |sandbox: &str, config: api::ContainerConfig, store: &mut Store| {
        store.create_container(sandbox, config, Some(Behaviour::default()), 0).err()
    };
    check(Code::AlreadyExists, "same name", &|store| create(&sandbox, container("c", ""), store));
    check(Code::NotFound, "no sandbox", &|store| create("x", container("c", ""), store));
    check(Code::InvalidArgument, "no name", &|store| {
        create(&sandbox, api::ContainerConfig::default(), store)
    });
    check(Code::FailedPrecondition, "started twice", &|store| store.start_container(&id, 0).err());
    check(Code::NotFound, "start", &|store| store.start_container("x", 0).err());
    check(Code::NotFound, "stop", &|store| store.stop_container("x", Duration::ZERO, 0).err());
    check(Code::NotFound, "update", &|store| store.update_container("x", Default::default()).err());
    check(Code::NotFound, "update pod", &|store| store.update_sandbox("x", None, None).err());
    check(Code::InvalidArgument, "cidr", &|store| store.set_pod_cidr("10.0.0.0").err());
}

#[test]
fn addresses_are_unique_and_come_back() {
    let mut store = store();
    let run = |store: &mut Store, name: String| store.run_sandbox(pod(&name), String::new(), 0);
    let ids: Vec<String> = (0..6).map(|i| run(&mut store, format!("p{i}")).expect("sandbox")).collect();
    let ips = |store: &Store| -> BTreeSet<Ipv4Addr> {
        store
            .snapshot(0)
            .sandboxes
            .iter()
            .filter(|sandbox| sandbox.ready)
            .filter_map(|sandbox| sandbox.ip)
            .collect()
    };
    assert_eq!(ips(&store).len(), 6);
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 6);
    assert!(ids.iter().all(|id| id.len() == 64), "{ids:?}");
    assert_eq!(run(&mut store, "full".to_owned()).unwrap_err().code(), tonic::Code::ResourceExhausted);
    store.stop_sandbox(&ids[2], 0);
    run(&mut store, "next".to_owned()).expect("an address was freed");
    assert_eq!(ips(&store).len(), 6);

    store.set_pod_cidr("10.9.0.0/24").expect("good range");
    let id = run(&mut store, "elsewhere".to_owned()).expect("sandbox");
    assert_eq!(store.sandbox(&id).expect("there").ip, Some(Ipv4Addr::new(10, 9, 0, 1)));
}

#[test]
fn the_host_network_needs_no_address() {
    let options = api::NamespaceOption { network: api::NamespaceMode::Node.into(), ..Default::default() };
    let context = api::LinuxSandboxSecurityContext { namespace_options: Some(options) };
    let linux = api::LinuxPodSandboxConfig { security_context: Some(context), ..Default::default() };
    let mut store = store();
    let id = store
        .run_sandbox(api::PodSandboxConfig { linux: Some(linux), ..pod("p") }, String::new(), 0)
        .expect("sandbox");
    assert_eq!(store.sandbox(&id).expect("there").ip, None);
}

#[test]
fn updates_say_only_what_changes() {
    let (mut store, _, id) = started("", Behaviour::default());
    let cpus = |cpus: &str, shares| api::LinuxContainerResources {
        cpuset_cpus: cpus.to_owned(),
        cpu_shares: shares,
        ..Default::default()
    };
    store.update_container(&id, cpus("0-3", 512)).expect("update");
    store.update_container(&id, cpus("4", 0)).expect("update");
    assert_eq!(store.container(&id).expect("there").resources(), cpus("4", 512));
}

#[test]
fn a_snapshot_shows_pods_with_their_newest_containers() {
    let (mut store, sandbox, first) = started("exit 1", Behaviour::default());
    let again = api::ContainerConfig {
        metadata: Some(api::ContainerMetadata { name: "c".to_owned(), attempt: 1 }),
        ..container("c", "")
    };
    let second =
        store.create_container(&sandbox, again, Some(Behaviour::default()), SECOND).expect("container");
    store.start_container(&second, SECOND).expect("start");
    let snapshot = store.snapshot(2 * SECOND);
    let pod = snapshot.pod("ns", "p").expect("pod");
    let ids: Vec<&str> = pod.containers.iter().map(|container| container.id.as_str()).collect();
    assert_eq!(ids, [first.as_str(), second.as_str()]);
    let newest = pod.container("c").expect("container");
    assert_eq!((newest.attempt, newest.state, newest.started_at), (1, State::Running, SECOND));
    assert_eq!(snapshot.pod("ns", "q"), None);
    assert_eq!(store.remove_container(&second), Some("/logs/c/0.log".to_owned()));
    assert_eq!(store.remove_container(&second), None);
}

#[test]
fn images_exist_once_named_and_go_by_name_or_id() {
    let mut store = store();
    assert_eq!(store.find_image(&image::id("app")), None);
    assert_eq!(store.find_image("app"), Some("app"));
    assert_eq!(store.find_image(&image::id("app")), Some("app"));
    store.find_image("tool");
    store.remove_image(&image::id("app"));
    assert_eq!(store.images().collect::<Vec<_>>(), ["tool"]);
    store.remove_image("tool");
    assert_eq!(store.images().count(), 0);
}
