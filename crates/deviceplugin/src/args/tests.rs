use super::*;

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

fn ours(words: &[&str]) -> anyhow::Result<Settings> {
    Cli::try_parse_from([&["x"], words].concat())?.args.settings()
}

fn samples(words: &[&str]) -> anyhow::Result<Settings> {
    let words: Vec<String> =
        [&["deviceplugin"], words].concat().iter().map(|word| (*word).to_owned()).collect();
    parse_sample(&words)?.settings()
}

#[test]
fn our_command_line() {
    let settings = ours(&["--config", "/etc/x.yaml", "--node-name=n"]).unwrap();
    assert_eq!(settings.source, ConfigSource::File("/etc/x.yaml".into()));
    assert_eq!(
        (settings.registration, settings.socket_dir.to_str().unwrap()),
        (RegistrationMode::Register, FOLDER)
    );
    assert_eq!((settings.environment.node.as_str(), settings.http.unwrap().port()), ("n", 8080));
    assert_eq!(settings.health, None);
    let health = ours(&["--config=x", "--health-probe-bind-address=127.0.0.1:1"]).unwrap().health;
    assert_eq!(health, "127.0.0.1:1".parse().ok());
    let settings = ours(&["--config=x", "--registration=watcher", "--http-bind-address=0"]).unwrap();
    assert_eq!((settings.registration, settings.http), (RegistrationMode::Watcher, None));
    assert_eq!(settings.socket_dir.to_str().unwrap(), node::pluginwatcher::FOLDER);
    for (words, wanted) in [
        (&["--http-bind-address=0"] as &[&str], "give --config FILE, or --resource NAME"),
        (&["--config=x", "--resource=a.b/c"], "cannot be used with"),
        (&["--resource=nic"], "--resource \"nic\" has no slash"),
        (&["--resource=a.b/c", "--generate=20000"], "--generate 20000: allowed are 0 to 16384"),
        (&["--config=x", "--socket-dir=y"], "--socket-dir \"y\": allowed are absolute paths"),
        (&["--config=x", "--http-bind-address=x"], "no address to listen on"),
        (&["--config=x", "--health-probe-bind-address=:8080"], "want the same port"),
        (&["--config=x", "--health-probe-bind-address=x"], "no address to listen on"),
        (&["--config=x", "--registration=both"], "possible values: register, watcher"),
    ] {
        let error = format!("{:#}", ours(words).unwrap_err());
        assert!(error.contains(wanted), "{words:?}: {error}");
    }
}

#[test]
fn the_sample_plugins_command_line() {
    // The arguments in the sample plugin's manifests.
    let settings = samples(&[
        "--alsologtostderr",
        "-C",
        "/etc/devices",
        "-r",
        "example.com/deviceA",
        "-v4",
        "--logtostderr=true",
    ])
    .unwrap();
    assert_eq!(settings.http, None);
    let ConfigSource::Flags(config) = settings.source else { unreachable!("no file is named") };
    let [resource] = config.resources.as_slice() else { unreachable!("one resource is named") };
    assert!(resource.sample && resource.name == "example.com/deviceA");
    let path = &resource.discovery.file.as_ref().unwrap().path;
    assert_eq!(path.to_str().unwrap(), "/etc/devices/example_com_deviceA.yaml");

    let settings = samples(&["-r=test.dev/x", "-G", "3", "--stderrthreshold=INFO", "--vmodule=a=1"]).unwrap();
    let ConfigSource::Flags(config) = settings.source else { unreachable!("no file is named") };
    let list = config.resources[0].discovery.list.clone().unwrap();
    let scan = crate::discovery::list::devices_of_node(&list, "anywhere", true).unwrap();
    assert_eq!(scan.devices.keys().map(|id| &**id).collect::<Vec<_>>(), ["Dev-0", "Dev-1", "Dev-2"]);
    assert!(scan.devices.values().all(|device| device.hardware.zones.is_empty() && !device.stated_unhealthy));
    assert!(
        is_sample_name("deviceplugin")
            && is_sample_name("sample-device-plugin")
            && !is_sample_name("device-plugin")
    );
}

/// At the start and when the file changes: a slip in it would give tenants the node.
#[test]
fn devices_that_give_the_whole_node_are_refused_unless_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("devices.yaml");
    let config = format!("--config={}", path.display());
    let read = |words: &[&str]| {
        let settings = ours(&[&[config.as_str()], words].concat()).unwrap();
        let changed = settings.read_if_changed(&mut crate::content_hash::ContentHash::default());
        let outcomes = [settings.read().map(drop), changed.map(drop)];
        outcomes.map(|outcome| outcome.map_err(|error| error.to_string()))
    };
    let list = "discovery: {list: {devices: {'*': [{id: a}]}}}";
    for (lines, field) in [
        (
            format!("{list}\n  container: {{mounts: [{{hostPath: /opt/x}}, {{hostPath: /}}]}}"),
            "container.mounts.hostPath",
        ),
        (format!("{list}\n  container: {{deviceNodes: [/dev/mem]}}"), "container.deviceNodes"),
        (
            "discovery: {list: {devices: {'*': [{id: a, deviceNodes: [/dev/port]}]}}}".to_owned(),
            "discovery.list",
        ),
    ] {
        let text = format!("version: v1alpha1\nresources:\n- name: example.com/nic\n  {lines}\n");
        std::fs::write(&path, text).unwrap();
        for refused in read(&[]) {
            let error = refused.unwrap_err();
            assert!(error.contains(field) && error.contains("--allow-host-paths"), "{error}");
        }
        assert_eq!(read(&["--allow-host-paths"]), [Ok(()), Ok(())], "{field}");
    }
}
