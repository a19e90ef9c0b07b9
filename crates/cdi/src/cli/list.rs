//! The list of devices.

use comfy_table::Table;
use comfy_table::presets::NOTHING;
use runtime::output::{Error, TableFormat, one_line};
use serde::Serialize;

use crate::registry::Registry;
use crate::spec::ContainerEdits;

/// One device, in JSON and YAML.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    name: String,
    file: String,
    cdi_version: &'a str,
    /// The device's own edits; those for any device of the file are in `common_edits`.
    container_edits: &'a ContainerEdits,
    #[serde(skip_serializing_if = "ContainerEdits::is_empty")]
    common_edits: &'a ContainerEdits,
}

/// How many edits of a device the table names.
const SHOWN: usize = 6;

/// Renders all devices in a format.
pub(super) fn render(registry: &Registry, format: TableFormat) -> Result<String, Error> {
    format.write(&entries(registry), |wide| table(registry, wide))
}

fn entries(registry: &Registry) -> Vec<Entry<'_>> {
    let mut entries = Vec::new();
    for (name, device, file) in registry.devices() {
        entries.push(Entry {
            name: name.to_string(),
            file: file.path.display().to_string(),
            cdi_version: &file.spec.cdi_version,
            container_edits: &device.container_edits,
            common_edits: &file.spec.container_edits,
        });
    }
    entries
}

fn table(registry: &Registry, wide: bool) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(if wide { vec!["NAME", "VERSION", "EDITS", "FILE"] } else { vec!["NAME", "FILE"] });
    for (name, device, file) in registry.devices() {
        let mut row = vec![name.to_string(), file.path.display().to_string()];
        if wide {
            let mut edits = file.spec.container_edits.clone();
            edits.extend(&device.container_edits);
            row.splice(1..1, [file.spec.cdi_version.clone(), summary(&edits)]);
        }
        table.add_row(row.iter().map(|text| one_line(text)));
    }
    table.trim_fmt() + "\n"
}

/// A summary of edits in a few words.
fn summary(edits: &ContainerEdits) -> String {
    let nodes = edits.device_nodes.iter().map(|node| node.path.clone());
    let nets = edits.net_devices.iter().map(|net| format!("interface {}", net.name));
    let mounts = edits.mounts.iter().map(|mount| format!("mount {}", mount.container_path));
    let mut words: Vec<String> = nodes.chain(nets).chain(mounts).collect();
    let variables =
        edits.env.iter().filter_map(|variable| variable.split_once('=')).map(|(name, _)| format!("${name}"));
    words.extend(variables);
    words.extend(edits.hooks.iter().map(|hook| format!("hook {}", hook.hook_name)));
    words.extend(edits.intel_rdt.iter().map(|_| "resctrl".to_owned()));
    words.extend(edits.additional_gids.iter().map(|gid| format!("group {gid}")));
    let more = words.len().saturating_sub(SHOWN);
    words.truncate(SHOWN);
    if more > 0 {
        words.push(format!("{more} more"));
    }
    words.join(", ")
}
