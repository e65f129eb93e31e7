//! The sites in a source file that mutants change, and the text with the switches in them.
//!
//! A switch is `match crate::mutant_switch::at(&[1, 2]) { 1 => …, 2 => …, _ => what stood there }`. Comments tell which lines belong to which
//! mutant, so that those that the compiler refuses can be told from its messages: `/*M1*/ … /*E1*/` around what mutant 1 puts there, and
//! `/*S1,2*/ … /*T*/` around the whole switch.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

use proc_macro2::LineColumn;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Arm, BinOp, Block, Expr, ExprBinary, ExprUnary};

use crate::Mutant;

/// All sites of one file, by what cargo-mutants gives as the start of a mutant.
pub(crate) struct Sites<'a> {
    text: &'a str,
    /// Where each line begins, in bytes.
    lines: Vec<usize>,
    operators: BTreeMap<usize, Site>,
    guards: BTreeMap<usize, Site>,
    arms: BTreeMap<usize, Site>,
    bodies: BTreeMap<usize, Site>,
    fields: BTreeMap<usize, Site>,
}

struct Site {
    /// What the switch takes the place of; empty where it stands before something.
    range: Range<usize>,
    kind: Kind,
    /// What each mutant puts there.
    mutants: Vec<(u32, String)>,
}

enum Kind {
    /// Of two operands.
    Binary {
        left: Range<usize>,
        right: Range<usize>,
    },
    Unary {
        operand: Range<usize>,
    },
    /// The guard of an arm.
    Guard,
    /// Behind the pattern of an arm; before its guard if it has one.
    Arm {
        has_guard: bool,
    },
    /// Where the body of a function begins.
    Body,
    /// A field of a struct expression that has a base, `..base`.
    Field {
        name: String,
        base: Range<usize>,
        value: Range<usize>,
    },
}

impl<'a> Sites<'a> {
    pub(crate) fn of(text: &'a str) -> syn::Result<Self> {
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let [operators, guards, arms, bodies, fields] = std::array::from_fn(|_| BTreeMap::new());
        let mut sites = Self { text, lines, operators, guards, arms, bodies, fields };
        sites.visit_file(&syn::parse_file(text)?);
        Ok(sites)
    }

    /// Takes one more mutant. False if there is no way to switch it.
    pub(crate) fn add(&mut self, mutant: &Mutant) -> bool {
        let start = self.at(LineColumn { line: mutant.span.start.line, column: mutant.span.start.column - 1 });
        let end = self.at(LineColumn { line: mutant.span.end.line, column: mutant.span.end.column - 1 });
        let site = match mutant.genre.as_str() {
            "BinaryOperator" | "UnaryOperator" => self.operators.get_mut(&start),
            "MatchArmGuard" => self.guards.get_mut(&start),
            "MatchArm" => self.arms.get_mut(&start),
            "StructField" => self.fields.get_mut(&start),
            // The innermost body that holds it.
            "FnValue" => self.bodies.range_mut(..=start).rev().map(|(_, body)| body).find(|body| end <= body.range.end),
            _ => None,
        };
        let Some(site) = site else { return false };
        site.mutants.push((mutant.id, mutant.replacement.clone()));
        true
    }

    pub(crate) fn render(&self) -> String {
        let maps = [&self.operators, &self.guards, &self.arms, &self.bodies, &self.fields];
        let mut sites: Vec<&Site> =
            maps.into_iter().flat_map(BTreeMap::values).filter(|site| !site.mutants.is_empty()).collect();
        // What stands before something first, then what holds others.
        sites.sort_by_key(|site| {
            let range = site.replaced();
            (range.start, !range.is_empty(), usize::MAX - range.end, !matches!(site.kind, Kind::Guard))
        });
        self.text_of(0..self.text.len(), &sites)
    }

    /// The text of a range with the switches in it. `sites` are those in the range, in order.
    fn text_of(&self, range: Range<usize>, mut sites: &[&Site]) -> String {
        let mut out = String::new();
        let mut at = range.start;
        while let Some((site, behind)) = sites.split_first() {
            let replaced = site.replaced();
            let held = behind.iter().take_while(|inner| inner.replaced().start < replaced.end).count();
            out.push_str(&self.text[at..replaced.start]);
            self.switch(&mut out, site, &behind[..held]);
            at = replaced.end;
            sites = &behind[held..];
        }
        out.push_str(&self.text[at..range.end]);
        out
    }

    fn switch(&self, out: &mut String, site: &Site, held: &[&Site]) {
        let ids: Vec<String> = site.mutants.iter().map(|(id, _)| id.to_string()).collect();
        let ids = ids.join(", ");
        let text = |range: &Range<usize>| &self.text[range.clone()];
        let mut arms = String::new();
        for (id, replacement) in &site.mutants {
            let new = match &site.kind {
                Kind::Binary { left, right } => format!("(({}) {replacement} ({}))", text(left), text(right)),
                Kind::Unary { operand } => format!("({})", text(operand)),
                Kind::Guard => replacement.clone(),
                Kind::Arm { .. } => "false".to_owned(),
                Kind::Body => format!("return {replacement}"),
                Kind::Field { name, base, .. } => format!("(({}).{name})", text(base)),
            };
            let _ = writeln!(arms, "/*M{id}*/ {id} => {new}, /*E{id}*/");
        }
        let old = match &site.kind {
            Kind::Body => "{}".to_owned(),
            Kind::Arm { .. } => "true".to_owned(),
            Kind::Binary { .. } | Kind::Unary { .. } | Kind::Guard => {
                format!("({})", self.text_of(site.range.clone(), held))
            }
            Kind::Field { value, .. } => format!("({})", self.text_of(value.clone(), held)),
        };
        let switch = format!("(match crate::mutant_switch::at(&[{ids}]) {{\n{arms}_ => {old},\n}})");
        let field = if let Kind::Field { name, .. } = &site.kind { format!("{name}: ") } else { String::new() };
        let (before, behind) = match &site.kind {
            Kind::Arm { has_guard: true } => (" ", " && "),
            Kind::Arm { has_guard: false } => (" if ", ""),
            Kind::Body => ("", ";"),
            _ => (field.as_str(), ""),
        };
        let _ = write!(out, "\n/*S{ids}*/{before}{switch}{behind}/*T*/\n");
    }

    fn at(&self, site: LineColumn) -> usize {
        let start = self.lines[site.line - 1];
        let line = &self.text[start..];
        start + line.char_indices().nth(site.column).map_or(line.len(), |(at, _)| at)
    }

    fn range(&self, of: impl Spanned) -> Range<usize> {
        let span = of.span();
        self.at(span.start())..self.at(span.end())
    }

    fn body(&mut self, block: &Block) {
        let open = self.range(block.brace_token.span.open());
        let range = open.end..self.range(block.brace_token.span.close()).start;
        self.bodies.insert(open.start, Site { range, kind: Kind::Body, mutants: Vec::new() });
    }
}

impl Site {
    fn replaced(&self) -> Range<usize> {
        match self.kind {
            Kind::Body | Kind::Arm { .. } => self.range.start..self.range.start,
            _ => self.range.clone(),
        }
    }
}

impl<'ast> Visit<'ast> for Sites<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.body(&function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.body(&function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.body(block);
        }
        visit::visit_trait_item_fn(self, function);
    }

    fn visit_expr_binary(&mut self, binary: &'ast ExprBinary) {
        // A condition that names something, `let … && …`, can stand in no switch.
        if !(matches!(binary.op, BinOp::And(_)) && (has_let(&binary.left) || has_let(&binary.right))) {
            let kind = Kind::Binary { left: self.range(&binary.left), right: self.range(&binary.right) };
            let site = Site { range: self.range(binary), kind, mutants: Vec::new() };
            self.operators.insert(self.range(binary.op).start, site);
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast ExprUnary) {
        let kind = Kind::Unary { operand: self.range(&unary.expr) };
        let site = Site { range: self.range(unary), kind, mutants: Vec::new() };
        self.operators.insert(site.range.start, site);
        visit::visit_expr_unary(self, unary);
    }

    fn visit_expr_struct(&mut self, expression: &'ast syn::ExprStruct) {
        if let Some(base) = &expression.rest {
            for field in &expression.fields {
                let name = self.text[self.range(&field.member)].to_owned();
                let kind = Kind::Field { name, base: self.range(&**base), value: self.range(&field.expr) };
                let site = Site { range: self.range(field), kind, mutants: Vec::new() };
                self.fields.insert(site.range.start, site);
            }
        }
        visit::visit_expr_struct(self, expression);
    }

    fn visit_arm(&mut self, arm: &'ast Arm) {
        let range = self.range(arm);
        let has_guard = match &arm.guard {
            Some((_, guard)) => {
                let site = Site { range: self.range(&**guard), kind: Kind::Guard, mutants: Vec::new() };
                let before = site.range.start..site.range.start;
                if !has_let(guard) {
                    self.guards.insert(site.range.start, site);
                    self.arms.insert(
                        range.start,
                        Site { range: before, kind: Kind::Arm { has_guard: true }, mutants: Vec::new() },
                    );
                }
                true
            }
            None => false,
        };
        if !has_guard {
            let end = self.range(&arm.pat).end;
            self.arms.insert(range.start, Site { range: end..end, kind: Kind::Arm { has_guard }, mutants: Vec::new() });
        }
        visit::visit_arm(self, arm);
    }
}

fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}
