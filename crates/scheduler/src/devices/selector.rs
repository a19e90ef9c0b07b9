//! Selectors of devices: expressions of the Common Expression Language (CEL).
//!
//! In: the text of an expression, and a device. Out: whether it selects the device. Never: a time without bound: an
//! evaluation ends after [`MAX_COST`] steps, and an expression has at most `MAX_OPERATORS` operators.
//!
//! The crate `cel` parses, and expands macros. The evaluation is our own, because the variable `device` has a default
//! for unknown domains, quantities and versions are values, and the cost is bounded (kube-scheduler 1.36
//! `dynamic-resource-allocation/cel`). The API server has checked types and costs before it stored the expression.
//!
//! Functions: those of CEL but for times, bytes and types, those of quantities and versions, `cel.bind`, `matches`, and
//! of the extension of strings `lowerAscii`, `upperAscii`, `trim` and `split`. Others are an error of compilation.
//! Cost: one step for each part of an expression that is evaluated, and one for ten characters that are copied.

use std::fmt;
use std::sync::{Arc, OnceLock};

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr};
use cel::parser::Macro;

use super::views::Device;

mod evaluation;
mod functions;
mod value;

use evaluation::Evaluation;

/// The most steps of one evaluation (`CELSelectorExpressionMaxCost`).
pub const MAX_COST: u64 = 1_000_000;
/// The most bytes of an expression (`CELSelectorExpressionMaxLength`).
const MAX_LENGTH: usize = 10 * 1024;
/// The most operators of an expression. Each may be a level of the tree, on which evaluation recurses: a few KiB of
/// stack without optimisation. The thread of the core has the room (`shell`).
const MAX_OPERATORS: usize = 400;
/// The most levels of parentheses, brackets and calls.
const MAX_DEPTH: u16 = 50;

/// An expression, which is compiled when it is first used.
#[derive(Debug)]
pub struct Selector {
    text: Arc<str>,
    program: OnceLock<Result<IdedExpr, String>>,
}

/// Why a selector says nothing about a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectorError {
    /// The expression is none.
    Compile(String),
    /// It has no value for this device.
    Runtime(String),
}

impl Selector {
    /// A selector with this expression.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self { text: text.into(), program: OnceLock::new() }
    }

    /// The expression.
    #[must_use]
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// Whether it selects a device of this driver.
    ///
    /// # Errors
    /// When it cannot be compiled, or has no value for the device.
    pub fn selects(&self, driver: &str, device: &Device) -> Result<bool, SelectorError> {
        let program = self.program.get_or_init(|| compile(&self.text));
        let program = program.as_ref().map_err(|reason| SelectorError::Compile(reason.clone()))?;
        let run = || {
            device.attributes.check()?;
            Evaluation::new(driver, device).run(program)
        };
        run().map_err(SelectorError::Runtime)
    }
}

impl PartialEq for Selector {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Selector {}

impl fmt::Display for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compile(reason) => write!(f, "CEL compile error: {reason}"),
            Self::Runtime(reason) => write!(f, "CEL runtime error: {reason}"),
        }
    }
}

fn compile(text: &str) -> Result<IdedExpr, String> {
    // Each level of the tree takes one of these, or a word.
    let operators =
        text.matches(['+', '-', '*', '/', '%', '<', '>', '=', '!', '&', '|', '?', '.', '[', '(', ',']);
    if text.len() > MAX_LENGTH || operators.count() + text.matches(" in ").count() > MAX_OPERATORS {
        return Err("compilation failed: the expression is too long".to_owned());
    }
    let mut environment = cel::Env::stdlib();
    environment.add_macro(bind()).map_err(|error| format!("compilation failed: {error}"))?;
    let parser = environment.parser().max_recursion_depth(MAX_DEPTH);
    let program = parser.parse(text).map_err(|errors| format!("compilation failed: {errors}"))?;
    check(&program.expr, &mut vec!["device".to_owned()])
        .map_err(|reason| format!("compilation failed: {reason}"))?;
    Ok(program)
}

/// `cel.bind(name, value, expression)`: the expression with a name for the value.
fn bind() -> Macro {
    Macro::receiver("bind", 3, |helper, target, arguments| {
        let is_cel = target.as_ref().is_some_and(|it| matches!(&it.expr, Expr::Ident(name) if name == "cel"));
        let [IdedExpr { expr: Expr::Ident(name), .. }, _, _] = arguments.as_slice() else {
            return match is_cel {
                true => Err(helper.new_error(0, "cel.bind() variable names must be simple identifiers")),
                false => Ok(None),
            };
        };
        if !is_cel {
            return Ok(None);
        }
        let name = name.clone();
        let (result, value) = (arguments.pop().unwrap_or_default(), arguments.pop().unwrap_or_default());
        let range = helper.next_expr(Expr::List(ListExpr::new(Vec::new())));
        let never = CallExpr { func_name: "!_".to_owned(), target: None, args: vec![literal(helper, true)] };
        let loop_step = helper.next_expr(Expr::Ident(name.clone()));
        let comprehension = ComprehensionExpr {
            iter_range: range,
            iter_var: "#unused".to_owned(),
            iter_var2: None,
            accu_var: name,
            accu_init: value,
            loop_cond: helper.next_expr(Expr::Call(never)),
            loop_step,
            result,
        };
        Ok(Some(helper.next_expr(Expr::Comprehension(Box::new(comprehension)))))
    })
}

fn literal(helper: &mut cel::parser::MacroExprHelper<'_>, value: bool) -> IdedExpr {
    helper.next_expr(Expr::Literal(cel::common::ast::LiteralValue::Boolean(value.into())))
}

/// Whether all names are known.
fn check(expr: &Expr, names: &mut Vec<String>) -> Result<(), String> {
    match expr {
        Expr::Literal(_) => Ok(()),
        Expr::Ident(name) if names.contains(name) => Ok(()),
        Expr::Ident(name) => Err(format!("undeclared reference to '{name}'")),
        Expr::Select(select) => {
            let is_device = matches!(&select.operand.expr, Expr::Ident(name) if name == "device");
            if is_device && !value::DEVICE_FIELDS.contains(&select.field.as_str()) {
                return Err(format!("undefined field '{}'", select.field));
            }
            check(&select.operand.expr, names)
        }
        Expr::Call(call) => {
            if !functions::is_known(call) {
                return Err(format!("undeclared reference to '{}'", call.func_name));
            }
            call.target.iter().try_for_each(|target| check(&target.expr, names))?;
            call.args.iter().try_for_each(|argument| check(&argument.expr, names))
        }
        Expr::List(list) => list.elements.iter().try_for_each(|element| check(&element.expr, names)),
        Expr::Map(map) => map.entries.iter().try_for_each(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => {
                check(&entry.key.expr, names)?;
                check(&entry.value.expr, names)
            }
            EntryExpr::StructField(_) => Err("unsupported field".to_owned()),
        }),
        Expr::Comprehension(it) => {
            check(&it.iter_range.expr, names)?;
            check(&it.accu_init.expr, names)?;
            let known = names.len();
            names.push(it.iter_var.clone());
            names.push(it.accu_var.clone());
            names.extend(it.iter_var2.clone());
            let inner = [&it.loop_cond, &it.loop_step, &it.result];
            let checked = inner.into_iter().try_for_each(|part| check(&part.expr, names));
            names.truncate(known);
            checked
        }
        Expr::Struct(_) | Expr::Unspecified => Err("unsupported expression".to_owned()),
    }
}

#[cfg(test)]
mod tests;
