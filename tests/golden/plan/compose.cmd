kiln explain --stage=plan 'margin_ranking_loss(f32[4], f32[4], f32[4], reduction=2)'
