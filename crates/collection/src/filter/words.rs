//! Parses filters that are written as text: `year >= 2020 and lang in ('de', 'en') and not archived`.

use super::error::FilterError;
use super::expression::{Comparison, Contains, Expression, Literal, MAX_DEPTH, SizeLimits, is_reserved};
use super::tokens::{Token, Tokens};

/// Parses a filter.
///
/// # Errors
/// The problem and its position.
pub(super) fn parse(text: &str) -> Result<Expression, FilterError> {
    let mut tokens = Tokens::new(text);
    let next = tokens.next()?;
    let mut parser = Parser { text, tokens, next, depth: 0, limits: SizeLimits::default() };
    if parser.next.1 == Token::End {
        return Err(parser.error("the filter is empty"));
    }
    let expression = parser.any_of()?;
    match parser.next.1 {
        Token::End => Ok(expression),
        Token::Close => Err(parser.error("this `)` closes nothing")),
        _ => Err(parser.expected("`and`, `or` or the end")),
    }
}

struct Parser<'a> {
    text: &'a str,
    tokens: Tokens<'a>,
    /// The next token, and the byte at which it begins.
    next: (usize, Token<'a>),
    /// Number of open parentheses and negations.
    depth: usize,
    limits: SizeLimits,
}

/// One side of a comparison.
enum Operand {
    Column(String),
    Literal(Literal),
}

impl<'a> Parser<'a> {
    /// Returns an error at the next token.
    fn error(&self, message: impl Into<String>) -> FilterError {
        FilterError::at(self.text, self.next.0, message)
    }

    fn expected(&self, expectation: &str) -> FilterError {
        self.error(format!("expected {expectation}, found {}", self.next.1))
    }

    /// Consumes the next token.
    fn take(&mut self) -> Result<(usize, Token<'a>), FilterError> {
        let next = self.tokens.next()?;
        Ok(std::mem::replace(&mut self.next, next))
    }

    /// Consumes the next token if it is `token`.
    fn accept(&mut self, token: &Token) -> Result<bool, FilterError> {
        let found = self.next.1 == *token;
        if found {
            self.take()?;
        }
        Ok(found)
    }

    /// Consumes the next token if it is this keyword.
    fn accept_word(&mut self, keyword: &str) -> Result<bool, FilterError> {
        let found = matches!(self.next.1, Token::Word(word) if word.eq_ignore_ascii_case(keyword));
        if found {
            self.take()?;
        }
        Ok(found)
    }

    fn demand(&mut self, token: &Token) -> Result<(), FilterError> {
        if self.accept(token)? { Ok(()) } else { Err(self.expected(&token.to_string())) }
    }

    fn enter(&mut self) -> Result<(), FilterError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error(format!("the filter is nested more than {MAX_DEPTH} deep")));
        }
        Ok(())
    }

    fn any_of(&mut self) -> Result<Expression, FilterError> {
        let first = self.all_of()?;
        let mut parts = vec![first];
        while self.accept(&Token::Or)? {
            parts.push(self.all_of()?);
        }
        Ok(Expression::joined(parts, Expression::Or))
    }

    fn all_of(&mut self) -> Result<Expression, FilterError> {
        let first = self.negation()?;
        let mut parts = vec![first];
        while self.accept(&Token::And)? {
            parts.push(self.negation()?);
        }
        Ok(Expression::joined(parts, Expression::And))
    }

    fn negation(&mut self) -> Result<Expression, FilterError> {
        if self.next.1 == Token::Not {
            self.enter()?;
            self.take()?;
            let inner = self.negation()?;
            self.depth -= 1;
            return Ok(Expression::not(inner));
        }
        if self.next.1 == Token::Open {
            self.enter()?;
            self.take()?;
            let inner = self.any_of()?;
            if !self.accept(&Token::Close)? {
                return Err(self.expected("`and`, `or` or `)`"));
            }
            self.depth -= 1;
            return Ok(inner);
        }
        self.condition()
    }

    fn condition(&mut self) -> Result<Expression, FilterError> {
        self.limits.condition().map_err(|message| self.error(message))?;
        let begin = self.next.0;
        if let Token::Word(word) = self.next.1
            && !is_reserved(word)
        {
            self.take()?;
            return if self.next.1 == Token::Open {
                self.function(begin, word)
            } else {
                self.column_condition(word.to_string())
            };
        }
        match self.operand("a condition")? {
            Operand::Column(name) => self.column_condition(name),
            Operand::Literal(literal) => {
                if let Token::Compare(comparison) = self.next.1 {
                    self.take()?;
                    let column = self.column()?;
                    return Ok(Expression::Compare(column, comparison.mirrored(), literal));
                }
                match literal {
                    Literal::Bool(value) => Ok(Expression::Constant(value)),
                    _ => Err(self.expected("a comparison such as `=` or `<` after the value")),
                }
            }
        }
    }

    /// Parses the rest of a condition, after the name of a column.
    fn column_condition(&mut self, name: String) -> Result<Expression, FilterError> {
        if let Token::Compare(comparison) = self.next.1 {
            self.take()?;
            return self.comparison(name, comparison);
        }
        if self.accept_word("is")? {
            let negated = self.accept(&Token::Not)?;
            if !self.accept_word("null")? {
                return Err(self.expected(if negated { "`null`" } else { "`null` or `not null`" }));
            }
            return Ok(not_if(negated, Expression::IsNull(name)));
        }
        let negated = self.accept(&Token::Not)?;
        let condition = if self.accept_word("in")? {
            Expression::In(name, self.literals()?)
        } else if self.accept_word("between")? {
            let low = self.literal()?;
            self.demand(&Token::And)?;
            Expression::Between(name, low, self.literal()?)
        } else if self.accept_word("like")? {
            Expression::StartsWith(name, self.pattern()?)
        } else if negated {
            return Err(self.expected("`in`, `between` or `like` after `not`"));
        } else {
            Expression::Flag(name)
        };
        Ok(not_if(negated, condition))
    }

    fn comparison(&mut self, name: String, comparison: Comparison) -> Result<Expression, FilterError> {
        match &self.next.1 {
            Token::Name(quoted) => Err(self.error(format!(
                "a column is compared with a value, not with another column; a string stands in single \
                 quotes: '{quoted}'"
            ))),
            Token::Word(word) if word.eq_ignore_ascii_case("null") => Err(self.error(
                "nothing is equal to null, and nothing differs from it; say `is null` or `is not null`",
            )),
            Token::Word(word) if !is_reserved(word) => Err(self.error(format!(
                "a column is compared with a value, not with another column; a string stands in single \
                 quotes: '{word}'"
            ))),
            _ => Ok(Expression::Compare(name, comparison, self.literal()?)),
        }
    }

    /// Parses the arguments of a function, whose name begins at `begin`.
    fn function(&mut self, begin: usize, word: &'a str) -> Result<Expression, FilterError> {
        let known = ["exists", "starts_with", "contains", "contains_any", "contains_all"];
        let Some(function) = known.into_iter().find(|known| word.eq_ignore_ascii_case(known)) else {
            let all = known.join(", ");
            return Err(FilterError::at(
                self.text,
                begin,
                format!("there is no function {word}; there are {all}"),
            ));
        };
        self.demand(&Token::Open)?;
        let column = self.column()?;
        if function != "exists" {
            self.demand(&Token::Comma)?;
        }
        let condition = match function {
            "exists" => Expression::not(Expression::IsNull(column)),
            "starts_with" => Expression::StartsWith(column, self.string()?),
            "contains" => Expression::Contains(column, Contains::Any, vec![self.literal()?]),
            "contains_any" => Expression::Contains(column, Contains::Any, self.literals()?),
            _ => Expression::Contains(column, Contains::All, self.literals()?),
        };
        self.demand(&Token::Close)?;
        Ok(condition)
    }

    /// Parses a list of literals in parentheses, which may be empty.
    fn literals(&mut self) -> Result<Vec<Literal>, FilterError> {
        self.demand(&Token::Open)?;
        let mut literals = Vec::new();
        if self.accept(&Token::Close)? {
            return Ok(literals);
        }
        loop {
            self.limits.value().map_err(|message| self.error(message))?;
            literals.push(self.literal()?);
            if self.accept(&Token::Close)? {
                return Ok(literals);
            }
            if !self.accept(&Token::Comma)? {
                return Err(self.expected("`,` or `)`"));
            }
        }
    }

    fn literal(&mut self) -> Result<Literal, FilterError> {
        match self.next.1 {
            Token::Name(_) => {
                Err(self.error("expected a value, found a name; a string stands in single quotes"))
            }
            Token::Word(word) if word.eq_ignore_ascii_case("null") => {
                Err(self.error("null is not allowed here; write `or COLUMN is null`"))
            }
            _ => match self.operand("a number, a string in single quotes, `true` or `false`")? {
                Operand::Literal(literal) => Ok(literal),
                // A name is refused above, and a word by `operand`.
                Operand::Column(_) => Err(self.expected("a value")),
            },
        }
    }

    /// Parses a literal or a quoted name.
    fn operand(&mut self, expectation: &str) -> Result<Operand, FilterError> {
        let literal = match &mut self.next.1 {
            Token::Number(number) => number.clone(),
            Token::Text(text) => Literal::Text(std::mem::take(text)),
            Token::Word(word) if word.eq_ignore_ascii_case("true") => Literal::Bool(true),
            Token::Word(word) if word.eq_ignore_ascii_case("false") => Literal::Bool(false),
            Token::Name(name) => {
                let name = std::mem::take(name);
                self.take()?;
                return Ok(Operand::Column(name));
            }
            _ => return Err(self.expected(expectation)),
        };
        self.take()?;
        Ok(Operand::Literal(literal))
    }

    fn column(&mut self) -> Result<String, FilterError> {
        match &mut self.next.1 {
            Token::Word(word) if !is_reserved(word) => {
                let name = word.to_string();
                self.take()?;
                Ok(name)
            }
            Token::Name(name) => {
                let name = std::mem::take(name);
                self.take()?;
                Ok(name)
            }
            _ => Err(self.expected("the name of a column")),
        }
    }

    fn string(&mut self) -> Result<String, FilterError> {
        match &mut self.next.1 {
            Token::Text(text) => {
                let text = std::mem::take(text);
                self.take()?;
                Ok(text)
            }
            _ => Err(self.expected("a string in single quotes")),
        }
    }

    /// Parses a pattern `'PREFIX%'`. Returns the prefix.
    fn pattern(&mut self) -> Result<String, FilterError> {
        let begin = self.next.0;
        let mut pattern = self.string()?;
        let ends_with_percent = pattern.pop() == Some('%');
        if !ends_with_percent || pattern.contains(['%', '_']) {
            return Err(FilterError::at(
                self.text,
                begin,
                "`like` takes a prefix, such as 'text%'; use `=` for whole strings, and starts_with for a \
                 prefix with % or _ in it",
            ));
        }
        Ok(pattern)
    }
}

fn not_if(negated: bool, condition: Expression) -> Expression {
    if negated { Expression::not(condition) } else { condition }
}
