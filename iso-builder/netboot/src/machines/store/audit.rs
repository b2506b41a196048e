//! The audit log in its table.

use anyhow::{Result, anyhow};

use super::columns::{bytes, json, moment, of_json, seconds};
use super::records::{MachineRecords, number};
use super::sql::{SqlRow, SqlValue};
use crate::machines::audit::{AuditEntry, AuditQuery, AuditRecord, AuditSubject};
use crate::moment::Moment;

impl MachineRecords<'_> {
    /// Adds an entry. Only inside a change of machines: such changes come one after the other, and so do the numbers.
    pub fn add_audit(&mut self, record: AuditRecord, now: Moment) -> Result<AuditEntry> {
        let machine = match &record.subject {
            AuditSubject::Machine { id, .. } => bytes(*id),
            _ => SqlValue::Null,
        };
        let sql = "INSERT INTO audit (number, moment, machine, entry) \
                   VALUES ((SELECT coalesce(max(number), 0) + 1 FROM audit), $1, $2, $3) RETURNING number";
        let mut rows = self.query(sql, &[seconds(now), machine, json(&record)?.into()])?;
        let mut row = rows.pop().ok_or_else(|| anyhow!("an entry of the audit log was not stored"))?;
        Ok(AuditEntry { number: row.take::<i64>()?.unsigned_abs(), time: now, record })
    }

    /// The entries that `query` asks for, the latest first.
    pub fn audit(&self, query: AuditQuery) -> Result<Vec<AuditEntry>> {
        let before = query.before.and_then(|before| i64::try_from(before).ok()).unwrap_or(i64::MAX);
        let mut values = vec![before.into()];
        let mut condition = "number < $1".to_owned();
        if let Some(machine) = query.machine {
            values.push(bytes(machine));
            condition += " AND machine = $2";
        }
        values.push(number(query.limit));
        let sql = format!(
            "SELECT number, moment, entry FROM audit WHERE {condition} ORDER BY number DESC LIMIT ${}",
            values.len()
        );
        self.query(&sql, &values)?.into_iter().map(entry).collect()
    }
}

fn entry(mut row: SqlRow) -> Result<AuditEntry> {
    let number = row.take::<i64>()?.unsigned_abs();
    Ok(AuditEntry { number, time: moment(&mut row)?, record: of_json(&row.take::<String>()?)? })
}
