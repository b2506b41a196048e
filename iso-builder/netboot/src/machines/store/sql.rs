//! SQL as the stores speak it: one text for every database, with the parameters `$1`, `$2` and so on.
//!
//! SQLite numbers such parameters in the order of their first use, PostgreSQL by their number, so a text has to name them in
//! that order. Everything else in which databases differ is in [`super::schema`] and in the modules of the databases.

use std::fmt;

use anyhow::{Result, anyhow};

/// A parameter, or a column of a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum SqlValue {
    Null,
    Boolean(bool),
    Integer(i64),
    Text(String),
    Bytes(Vec<u8>),
}

/// One open transaction.
pub(super) trait SqlTransaction: fmt::Debug {
    /// Runs a statement. Returns its rows.
    fn query(&mut self, sql: &str, values: &[SqlValue]) -> Result<Vec<SqlRow>>;
    /// Runs a statement. Returns the number of rows that it changed.
    fn execute(&mut self, sql: &str, values: &[SqlValue]) -> Result<u64>;
}

/// A row whose columns are taken from left to right.
#[derive(Debug)]
pub(super) struct SqlRow(std::vec::IntoIter<SqlValue>);

impl SqlRow {
    pub(super) fn new(values: Vec<SqlValue>) -> Self {
        Self(values.into_iter())
    }

    /// The columns that are left.
    pub(super) fn rest(&self) -> &[SqlValue] {
        self.0.as_slice()
    }

    /// The next column.
    pub(super) fn take<T: FromSqlValue>(&mut self) -> Result<T> {
        let value = self.0.next().ok_or_else(|| anyhow!("a row of the state has too few columns"))?;
        T::from_sql(value)
    }
}

/// A type that a column can have.
pub(super) trait FromSqlValue: Sized {
    fn from_sql(value: SqlValue) -> Result<Self>;
}

impl<T: FromSqlValue> FromSqlValue for Option<T> {
    fn from_sql(value: SqlValue) -> Result<Self> {
        match value {
            SqlValue::Null => Ok(None),
            value => T::from_sql(value).map(Some),
        }
    }
}

impl<T: Into<Self>> From<Option<T>> for SqlValue {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl From<u32> for SqlValue {
    fn from(value: u32) -> Self {
        Self::Integer(value.into())
    }
}

impl FromSqlValue for u32 {
    fn from_sql(value: SqlValue) -> Result<Self> {
        Ok(Self::try_from(i64::from_sql(value)?)?)
    }
}

impl From<&str> for SqlValue {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

macro_rules! sql_type {
    ($type:ty, $variant:ident) => {
        impl From<$type> for SqlValue {
            fn from(value: $type) -> Self {
                Self::$variant(value)
            }
        }

        impl FromSqlValue for $type {
            fn from_sql(value: SqlValue) -> Result<Self> {
                match value {
                    SqlValue::$variant(value) => Ok(value),
                    _ => Err(anyhow!("a column of the state has another type than {}", stringify!($variant))),
                }
            }
        }
    };
}

sql_type!(bool, Boolean);
sql_type!(i64, Integer);
sql_type!(String, Text);
sql_type!(Vec<u8>, Bytes);
