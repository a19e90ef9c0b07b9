//! Variables of devices in containers: the kubelet sets some, the container runtime others, and a container has one
//! value of each.

use std::collections::BTreeMap;

use crate::rig::Rig;

#[tokio::test]
async fn several_devices_share_a_variable_in_every_cdi_mode() {
    let Some(rig) = Rig::start().await else { return };
    let modes = ["off", "field", "annotation"];
    let resource = |mode: &str| {
        let devices = "[{id: a, envs: {CARD: a}}, {id: b, envs: {CARD: b, ONLY: b}}]";
        format!(
            "- name: example.com/{mode}\n  discovery: {{list: {{devices: {{\"*\": {devices}}}}}}}\n  \
             cdi: {{mode: {mode}}}\n  container: {{envs: {{CARD: all, COMMON: all}}}}\n"
        )
    };
    let plugin = rig.plugin(&format!("version: v1alpha1\nresources:\n{}", modes.map(resource).concat()));
    for mode in modes {
        let resource = format!("example.com/{mode}");
        rig.node_has(&resource, "2", "2").await;
        rig.pod(mode, &[(&resource, 2)]).await;
        rig.runs(mode).await;
        let seen = rig.variables(&rig.container(mode));
        let devices = format!("EXAMPLE_COM_{}_DEVICES", mode.to_uppercase());
        let wanted = [("CARD", "a,b,all"), ("COMMON", "all"), (&devices, "a,b"), ("ONLY", "b")];
        let seen: BTreeMap<_, _> =
            wanted.iter().filter_map(|(name, _)| Some((*name, &**seen.get(*name)?))).collect();
        assert_eq!(seen, wanted.into(), "{mode}");
    }
    plugin.stop().await;
}
