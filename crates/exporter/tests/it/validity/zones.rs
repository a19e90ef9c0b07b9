//! Zones as the plugin reads them, and what has to be true of each.

use super::*;

/// The plugin's table of cells ends here: id 64 makes it panic, further ones are skipped.
const MAX_ID: u32 = 63;

/// The cells by id.
pub(super) fn cells(zones: &Value, known: &Expected, wrong: &mut Wrong) -> BTreeMap<u32, Cell> {
    wrong.when(!zones.is_array(), || format!("zones is not a list: {zones}"));
    let mut cells = BTreeMap::new();
    for zone in list("zones", zones, wrong) {
        let name = text(&zone["name"]);
        if zone["type"] != "Node" {
            wrong.when(text(&zone["type"]).to_uppercase().starts_with("NODE"), || {
                format!("zone {name:?} is skipped: its type is {}", zone["type"])
            });
            continue;
        }
        let Some(id) = id(name) else {
            wrong.0.push(format!("zone {name:?} is skipped: its name is not that of a NUMA node"));
            continue;
        };
        wrong.when(id > MAX_ID, || format!("zone {name:?} is more than the plugin can bear"));
        let cell = Cell { available: resources(zone, wrong), costs: costs(zone, wrong) };
        wrong.when(cells.insert(id, cell).is_some(), || format!("there are two zones {name:?}"));
    }
    wrong.when(cells.is_empty(), || "there is no NUMA zone".to_owned());
    for (id, cell) in &cells {
        let told = cell.costs.keys().ne(cells.keys());
        wrong.when(told && !(known.no_distances && cell.costs.is_empty()), || {
            let (found, wanted): (Vec<_>, Vec<_>) = (cell.costs.keys().collect(), cells.keys().collect());
            format!("zone node-{id} has costs to {found:?}, the zones are {wanted:?}")
        });
    }
    cells
}

/// The id in a zone's name, spelled in the one way that all readers take.
pub(super) fn id(name: &str) -> Option<u32> {
    let id: u32 = name.strip_prefix("node-")?.parse().ok()?;
    (name == format!("node-{id}")).then_some(id)
}

/// What is available, by resource. Of two entries of a name the plugin takes the last.
fn resources(zone: &Value, wrong: &mut Wrong) -> BTreeMap<String, Quantity> {
    let whose = text(&zone["name"]);
    let mut all = BTreeMap::new();
    for resource in list(&format!("the resources of {whose}"), &zone["resources"], wrong) {
        let name = text(&resource["name"]);
        wrong.when(name.is_empty(), || format!("{whose} has a resource without a name"));
        let [capacity, allocatable, available] =
            ["capacity", "allocatable", "available"].map(|field| amount(whose, name, field, resource, wrong));
        wrong.when(available > allocatable || allocatable > capacity, || {
            format!("{whose} has {available} of {allocatable} of {capacity} {name}")
        });
        let before = all.insert(name.to_owned(), available);
        wrong.when(before.is_some(), || format!("{whose} has {name} twice"));
    }
    wrong.when(!all.contains_key("cpu"), || format!("{whose} does not list cpu"));
    all
}

/// An amount, in whole units as every exporter publishes it.
fn amount(whose: &str, name: &str, field: &str, resource: &Value, wrong: &mut Wrong) -> Quantity {
    let found = &resource[field];
    let parsed = match found {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
        _ => None,
    };
    let Some(amount) = parsed else {
        wrong.0.push(format!("{whose}: {field} of {name} is not a quantity: {found}"));
        return Quantity::ZERO;
    };
    wrong.when(amount < Quantity::ZERO, || format!("{whose}: {field} of {name} is negative: {amount}"));
    let whole = amount.floor_value() == amount.value();
    wrong.when(!whole, || format!("{whose}: {field} of {name} is not whole: {amount}"));
    amount
}

/// Distances by id. The plugin drops what it cannot read.
fn costs(zone: &Value, wrong: &mut Wrong) -> BTreeMap<u32, i64> {
    let whose = text(&zone["name"]);
    let mut all = BTreeMap::new();
    for cost in list(&format!("the costs of {whose}"), &zone["costs"], wrong) {
        match (id(text(&cost["name"])), cost["value"].as_i64()) {
            (Some(id), Some(value)) if value > 0 => {
                wrong.when(all.insert(id, value).is_some(), || format!("{whose} has two costs to node-{id}"));
            }
            _ => wrong.0.push(format!("{whose} has a cost that makes no sense: {cost}")),
        }
    }
    all
}
