//! One evaluation of a selector for one device.

use std::rc::Rc;

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};

use super::MAX_COST;
use super::functions;
use super::value::Value;
use crate::devices::views::Device;

/// A value, or kube-scheduler's words for why there is none.
pub(super) type Evaluated<'a> = Result<Value<'a>, String>;

/// The state of an evaluation.
pub(super) struct Evaluation<'a> {
    driver: &'a str,
    device: &'a Device,
    /// The names of loops and `cel.bind`, the innermost last.
    names: Vec<(&'a str, Evaluated<'a>)>,
    cost: u64,
}

pub(super) fn no_overload() -> String {
    "no such overload".to_owned()
}

fn no_key(key: &str) -> String {
    format!("no such key: {key}")
}

impl<'a> Evaluation<'a> {
    pub(super) fn new(driver: &'a str, device: &'a Device) -> Self {
        Self { driver, device, names: Vec::new(), cost: 0 }
    }

    /// Whether the expression selects the device.
    pub(super) fn run(mut self, program: &'a IdedExpr) -> Result<bool, String> {
        match self.evaluate(program)? {
            Value::Bool(selects) => Ok(selects),
            other => {
                let name = other.type_name();
                Err(format!(
                    "CEL result of type {name} could not be converted to bool: \
                     unsupported native conversion from {name} to 'bool'"
                ))
            }
        }
    }

    /// Counts steps.
    pub(super) fn charge(&mut self, steps: u64) -> Result<(), String> {
        self.cost = self.cost.saturating_add(steps);
        match self.cost > MAX_COST {
            true => Err("operation cancelled: actual cost limit exceeded".to_owned()),
            false => Ok(()),
        }
    }

    /// Counts the steps of a text or list that is looked through or copied.
    pub(super) fn charge_size(&mut self, size: usize) -> Result<(), String> {
        self.charge(1 + size as u64 / 10)
    }

    fn evaluate(&mut self, expr: &'a IdedExpr) -> Evaluated<'a> {
        self.charge(1)?;
        match &expr.expr {
            Expr::Literal(literal) => literal_value(literal),
            Expr::Ident(name) => self.named(name),
            Expr::Select(select) => {
                let operand = self.evaluate(&select.operand)?;
                if select.test {
                    return self.has(&operand, &select.field).map(Value::Bool);
                }
                self.entry(&operand, &Value::text(&select.field))
            }
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                let elements = list.elements.iter().map(|element| self.evaluate(element));
                Ok(Value::List(Rc::new(elements.collect::<Result<_, _>>()?)))
            }
            Expr::Map(map) => {
                let mut entries = Vec::new();
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else { return Err(no_overload()) };
                    entries.push((self.evaluate(&entry.key)?, self.evaluate(&entry.value)?));
                }
                Ok(Value::Map(Rc::new(entries)))
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Struct(_) | Expr::Unspecified => Err(no_overload()),
        }
    }

    fn named(&self, name: &str) -> Evaluated<'a> {
        match self.names.iter().rev().find(|(known, _)| *known == name) {
            Some((_, value)) => value.clone(),
            None if name == "device" => Ok(Value::Device),
            None => Err(format!("no such attribute(s): {name}")),
        }
    }

    /// An entry of a map or list, or a field of the device. Domains that the device does not have are empty.
    fn entry(&self, of: &Value<'a>, key: &Value<'a>) -> Evaluated<'a> {
        match (of, key) {
            (Value::List(list), Value::Int(at)) => {
                let element = usize::try_from(*at).ok().and_then(|at| list.get(at));
                element.cloned().ok_or_else(|| format!("index out of bounds: {at}"))
            }
            (Value::Map(entries), key) => {
                let found = entries.iter().find(|(known, _)| known.equals(key));
                found.map(|(_, value)| value.clone()).ok_or_else(|| no_key(&functions::show(key)))
            }
            (Value::Device, Value::Text(field)) => match field.as_ref() {
                "driver" => Ok(Value::text(self.driver)),
                "attributes" => Ok(Value::Attributes),
                "capacity" => Ok(Value::Capacity),
                "allowMultipleAllocations" => Ok(Value::Bool(self.device.is_shareable)),
                _ => Err(no_key(field)),
            },
            (Value::Attributes, Value::Text(domain)) => {
                Ok(Value::AttributesOf(self.device.attributes.domain(domain)))
            }
            (Value::Capacity, Value::Text(domain)) => {
                Ok(Value::CapacityOf(self.device.capacity_values.get(domain.as_ref())))
            }
            (Value::AttributesOf(attributes), Value::Text(id)) => {
                let found = attributes.and_then(|attributes| attributes.get(id.as_ref()));
                found.map(Value::attribute).ok_or_else(|| no_key(id))
            }
            (Value::CapacityOf(capacity), Value::Text(id)) => {
                let found = capacity.and_then(|capacity| capacity.get(id.as_ref()));
                found.map(|quantity| Value::Quantity(*quantity)).ok_or_else(|| no_key(id))
            }
            (Value::Attributes | Value::Capacity | Value::AttributesOf(_) | Value::CapacityOf(_), other) => {
                Err(no_key(&functions::show(other)))
            }
            _ => Err(no_overload()),
        }
    }

    /// The macro `has`.
    fn has(&self, of: &Value<'a>, field: &str) -> Result<bool, String> {
        match of {
            // A look-up of a domain always finds one.
            Value::Device | Value::Attributes | Value::Capacity => Ok(true),
            _ => self.contains(of, &Value::Text(field.to_owned().into())),
        }
    }

    /// Whether a list has an element, or a map a key. Only domains of the device count.
    pub(super) fn contains(&self, of: &Value<'a>, key: &Value<'a>) -> Result<bool, String> {
        let text = match key {
            Value::Text(text) => Some(text.as_ref()),
            _ => None,
        };
        Ok(match of {
            Value::List(list) => list.iter().any(|element| element.equals(key)),
            Value::Map(entries) => entries.iter().any(|(known, _)| known.equals(key)),
            Value::Attributes => text.is_some_and(|domain| self.device.attributes.domain(domain).is_some()),
            Value::Capacity => text.is_some_and(|domain| self.device.capacity_values.contains_key(domain)),
            Value::AttributesOf(of) => {
                text.zip(*of).is_some_and(|(id, attributes)| attributes.contains_key(id))
            }
            Value::CapacityOf(of) => text.zip(*of).is_some_and(|(id, capacity)| capacity.contains_key(id)),
            _ => return Err(no_overload()),
        })
    }

    /// What a loop over a list or the keys of a map goes through.
    pub(super) fn elements(&self, of: &Value<'a>) -> Result<Rc<Vec<Value<'a>>>, String> {
        let texts =
            |keys: &mut dyn Iterator<Item = &'a String>| Rc::new(keys.map(|key| Value::text(key)).collect());
        Ok(match of {
            Value::List(list) => Rc::clone(list),
            Value::Map(entries) => Rc::new(entries.iter().map(|(key, _)| key.clone()).collect()),
            Value::Attributes => Rc::new(self.device.attributes.domains().map(Value::text).collect()),
            Value::Capacity => texts(&mut self.device.capacity_values.keys()),
            Value::AttributesOf(of) => texts(&mut of.iter().flat_map(|attributes| attributes.keys())),
            Value::CapacityOf(of) => texts(&mut of.iter().flat_map(|capacity| capacity.keys())),
            _ => return Err(no_overload()),
        })
    }

    fn comprehension(&mut self, it: &'a ComprehensionExpr) -> Evaluated<'a> {
        let range = self.evaluate(&it.iter_range)?;
        let elements = self.elements(&range)?;
        // A value that is missing is passed on, as a later element may decide without it (`all`, `exists`).
        let mut result = self.evaluate(&it.accu_init);
        for element in elements.iter() {
            self.charge(1)?;
            self.names.push((&it.accu_var, result.clone()));
            self.names.push((&it.iter_var, Ok(element.clone())));
            let goes_on = !matches!(self.evaluate(&it.loop_cond), Ok(Value::Bool(false)));
            if goes_on {
                result = self.evaluate(&it.loop_step);
            }
            self.names.truncate(self.names.len() - 2);
            if !goes_on {
                break;
            }
        }
        self.names.push((&it.accu_var, result));
        let value = self.evaluate(&it.result);
        self.names.pop();
        value
    }

    fn call(&mut self, call: &'a CallExpr) -> Evaluated<'a> {
        match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::CONDITIONAL, [condition, yes, no]) => match self.evaluate(condition)? {
                Value::Bool(true) => self.evaluate(yes),
                Value::Bool(false) => self.evaluate(no),
                _ => Err(no_overload()),
            },
            (operators::LOGICAL_AND, [one, other]) => self.logical(one, other, false),
            (operators::LOGICAL_OR, [one, other]) => self.logical(one, other, true),
            (operators::NOT_STRICTLY_FALSE, [operand]) => {
                let value = self.evaluate(operand);
                Ok(Value::Bool(!matches!(value, Ok(Value::Bool(false)))))
            }
            (operators::INDEX, [of, key]) => {
                let (of, key) = (self.evaluate(of)?, self.evaluate(key)?);
                self.entry(&of, &key)
            }
            _ => {
                let target = call.target.iter().map(|target| &**target);
                let arguments = target.chain(&call.args).map(|argument| self.evaluate(argument));
                let arguments: Vec<Value<'a>> = arguments.collect::<Result<_, _>>()?;
                functions::apply(self, call, &arguments)
            }
        }
    }

    /// `&&` and `||`: one side alone may decide, also where the other has no value.
    fn logical(&mut self, one: &'a IdedExpr, other: &'a IdedExpr, decides: bool) -> Evaluated<'a> {
        let one = self.evaluate(one);
        if matches!(one, Ok(Value::Bool(value)) if value == decides) {
            return one;
        }
        let other = self.evaluate(other);
        match (one, other) {
            (_, Ok(Value::Bool(value))) if value == decides => Ok(Value::Bool(decides)),
            (Ok(Value::Bool(_)), Ok(Value::Bool(_))) => Ok(Value::Bool(!decides)),
            (Err(reason), _) | (Ok(_), Err(reason)) => Err(reason),
            (Ok(_), Ok(_)) => Err(no_overload()),
        }
    }
}

fn literal_value(literal: &LiteralValue) -> Evaluated<'_> {
    Ok(match literal {
        LiteralValue::Boolean(value) => Value::Bool(*value.inner()),
        LiteralValue::Double(value) => Value::Double(*value.inner()),
        LiteralValue::Int(value) => Value::Int(*value.inner()),
        LiteralValue::UInt(value) => Value::Uint(*value.inner()),
        LiteralValue::String(value) => Value::text(value.inner()),
        LiteralValue::Null => Value::Null,
        LiteralValue::Bytes(_) => return Err(no_overload()),
    })
}
